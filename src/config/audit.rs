//! Where an agent's audit log is.

use std::path::{Path, PathBuf};

use toml_span::de_helpers::TableHelper;
use toml_span::{DeserError, Deserialize, Spanned, Value};

use super::fault::Fault;

/// An `[audit]`.
pub(super) struct Audit {
    file: Spanned<String>,
}

impl<'de> Deserialize<'de> for Audit {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let file = table.required_s("file");
        table.finalize(None)?;
        Ok(Self { file: file? })
    }
}

impl Audit {
    /// Where it says.
    pub(super) fn read(&self) -> Result<PathBuf, Fault> {
        let text = &self.file.value;
        if !Path::new(text).is_absolute() || text.contains('\0') {
            let reason = format!(
                "file = {text:?} is no absolute path: write it like \"/var/log/distlock/audit.jsonl\""
            );
            return Err(Fault::new(self.file.span, reason));
        }
        Ok(text.into())
    }
}
