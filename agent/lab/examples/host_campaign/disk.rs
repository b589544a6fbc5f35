//! What a power cut leaves of a host's files: all that was synced, and of the rest some.
//!
//! A file has the content of its last fsync(2), or more of what was written since: all, or a first part.
//! A directory has the names that it had at its last fsync; a name that came or went since may have
//! come or gone, or not (POSIX fsync; "All file systems are not created equal", OSDI 2014, section 3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use distlock_lab::choices::Choices;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Of each file by its inode.
    files: BTreeMap<u64, Vec<u8>>,
    /// The pipes, by their inodes.
    fifos: BTreeSet<u64>,
    /// Of each directory.
    names: BTreeMap<PathBuf, BTreeMap<String, u64>>,
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
            self.files.insert(about.ino(), fs::read(descriptor)?);
        }
        Ok(())
    }

    /// The names in `dir`, and what they name.
    fn look(&mut self, dir: &Path) -> io::Result<BTreeMap<String, u64>> {
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.file_type().is_fifo() {
                self.fifos.insert(about.ino());
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            names.insert(name, about.ino());
        }
        Ok(names)
    }

    /// Leaves below `dir` what the power cut has left, and no file that only processes have.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn lose(&mut self, dir: &Path, choices: &mut Choices) -> io::Result<()> {
        let there = self.look(dir)?;
        let contents: BTreeMap<u64, Vec<u8>> = there
            .iter()
            .filter(|(name, _)| dir.join(name).is_file())
            .map(|(name, inode)| Ok((*inode, fs::read(dir.join(name))?)))
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
                Some(inode) => {
                    left.insert(name.clone(), *inode);
                }
                None if after.is_some() && !dir.join(name).is_dir() => {
                    fs::remove_file(dir.join(name))?;
                }
                None => {}
            }
        }
        for (name, inode) in left {
            let path = dir.join(&name);
            if path.is_dir() || (there.get(&name) == Some(&inode) && !path.is_file()) {
                continue;
            }
            if self.fifos.contains(&inode) {
                if path.exists() {
                    fs::remove_file(&path)?;
                }
                mkfifo(&path, Mode::from_bits_truncate(0o600))?;
                continue;
            }
            if path.exists() && !path.is_file() {
                fs::remove_file(&path)?;
            }
            let synced = self.files.get(&inode);
            let written = contents.get(&inode);
            let content = match (synced, written) {
                (Some(synced), Some(written)) if synced != written => {
                    torn(synced, written, choices)
                }
                (None, Some(written)) => torn(&[], written, choices),
                (Some(synced), _) => synced.clone(),
                (None, None) => Vec::new(),
            };
            fs::write(&path, &content)?;
            self.files.insert(fs::metadata(&path)?.ino(), content);
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
        1 => written.len(),
        _ => choices.index(written.len() + 1),
    };
    let mut content = written[..first].to_vec();
    content.extend(synced.iter().skip(first));
    content
}
