//! What a power cut leaves of a host's files: all that was synced, and of the rest some.
//!
//! A file has the content of its last fsync(2), or more of what was written since: all, or a first part, behind
//! which there may be zeros. What could not be synced is not synced by a later fsync either, unless the file has
//! other content by then: it counts as clean ("Can Applications Recover from fsync Failures?", ATC 2020, section 3).
//! A directory has the names that it had at its last fsync; a name that came or went since may have
//! come or gone, or not (POSIX fsync; "All file systems are not created equal", OSDI 2014, section 3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use distlock_lab::choices::Choices;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// Its inode, and when that came to be: numbers of inodes are given out again.
type Id = (u64, Option<SystemTime>);

fn id(about: &Metadata) -> Id {
    (about.ino(), about.created().ok())
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// What is on disk of each file.
    files: BTreeMap<Id, Vec<u8>>,
    /// The content of each file that could not be synced, and was not written since.
    unsynced: BTreeMap<Id, Vec<u8>>,
    /// The pipes.
    fifos: BTreeSet<Id>,
    /// Of each directory.
    names: BTreeMap<PathBuf, BTreeMap<String, Id>>,
}

impl Disk {
    /// What `descriptor`, a link below /proc, names was synced.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn synced(&mut self, descriptor: &Path) -> io::Result<()> {
        let about = fs::metadata(descriptor)?;
        if about.is_dir() {
            let path = fs::read_link(descriptor)?;
            let names = self.look(&path)?;
            self.names.insert(path, names);
        } else if about.is_file() {
            let content = fs::read(descriptor)?;
            if self.unsynced.get(&id(&about)) != Some(&content) {
                self.unsynced.remove(&id(&about));
                self.files.insert(id(&about), content);
            }
        }
        Ok(())
    }

    /// What `descriptor` names could not be synced.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn not_synced(&mut self, descriptor: &Path) -> io::Result<()> {
        let about = fs::metadata(descriptor)?;
        if about.is_file() {
            self.unsynced.insert(id(&about), fs::read(descriptor)?);
        }
        Ok(())
    }

    /// The names in `dir`, and what they name.
    fn look(&mut self, dir: &Path) -> io::Result<BTreeMap<String, Id>> {
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.file_type().is_fifo() {
                self.fifos.insert(id(&about));
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            names.insert(name, id(&about));
        }
        Ok(names)
    }

    /// Leaves below `dir` what the power cut has left, and no file that only processes have.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn lose(&mut self, dir: &Path, choices: &mut Choices) -> io::Result<()> {
        self.unsynced.clear();
        let there = self.look(dir)?;
        let contents: BTreeMap<Id, Vec<u8>> = there
            .iter()
            .filter(|(name, _)| dir.join(name).is_file())
            .map(|(name, file)| Ok((*file, fs::read(dir.join(name))?)))
            .collect::<io::Result<_>>()?;
        for name in there.keys() {
            let path = dir.join(name);
            if path.is_dir() {
                self.lose(&path, choices)?;
            }
        }
        let synced = self.names.get(dir).cloned().unwrap_or_default();
        let mut left = BTreeMap::new();
        for name in synced.keys().chain(there.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (synced.get(name), there.get(name));
            let is_done = before == after || choices.chance(500);
            match if is_done { after } else { before } {
                Some(file) => {
                    left.insert(name.clone(), *file);
                }
                None if after.is_some() && !dir.join(name).is_dir() => {
                    fs::remove_file(dir.join(name))?;
                }
                None => {}
            }
        }
        for (name, file) in left {
            let path = dir.join(&name);
            if path.is_dir() || (there.get(&name) == Some(&file) && !path.is_file()) {
                continue;
            }
            if self.fifos.contains(&file) {
                if path.exists() {
                    fs::remove_file(&path)?;
                }
                mkfifo(&path, Mode::from_bits_truncate(0o600))?;
                continue;
            }
            if path.exists() && !path.is_file() {
                fs::remove_file(&path)?;
            }
            let synced = self.files.get(&file);
            let written = contents.get(&file);
            let content = match (synced, written) {
                (Some(synced), Some(written)) if synced != written => {
                    torn(synced, written, choices)
                }
                (None, Some(written)) => torn(&[], written, choices),
                (Some(synced), _) => synced.clone(),
                (None, None) => Vec::new(),
            };
            fs::write(&path, &content)?;
            self.files.insert(id(&fs::metadata(&path)?), content);
        }
        let now = self.look(dir)?;
        self.names.insert(dir.to_owned(), now);
        Ok(())
    }
}

/// What is on disk of a file that was written over, and not synced.
fn torn(synced: &[u8], written: &[u8], choices: &mut Choices) -> Vec<u8> {
    let first = match choices.below(3) {
        0 => 0,
        1 => return written.to_vec(),
        _ => choices.index(written.len() + 1),
    };
    let mut content = written[..first].to_vec();
    content.extend(synced.iter().skip(first));
    // It has got its new length before what is there.
    if content.len() < written.len() && choices.chance(300) {
        content.resize(written.len(), 0);
    }
    content
}
