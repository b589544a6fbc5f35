//! The table `[store]` of a configuration.

#[cfg(feature = "store")]
use std::path::{Path, PathBuf};

#[cfg(feature = "store")]
use distlock_stores::StoreUrl;
use toml_span::de_helpers::TableHelper;
use toml_span::{DeserError, Deserialize, Spanned, Value};

#[cfg(feature = "store")]
use super::fault::Fault;
#[cfg(feature = "store")]
use super::store::{self, Access};

/// A `[store]`.
#[cfg_attr(
    not(feature = "store"),
    expect(dead_code, reason = "it is read, so that it is refused in words")
)]
pub(super) struct StoreTable {
    at: Spanned<String>,
    user: Option<Spanned<String>>,
    password_file: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    cert_file: Option<Spanned<String>>,
    key_file: Option<Spanned<String>>,
    require: Option<Spanned<String>>,
    hints: Option<bool>,
}

impl<'de> Deserialize<'de> for StoreTable {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let at = table.required_s("at");
        let user = table.optional_s("user");
        let password_file = table.optional_s("password_file");
        let ca_file = table.optional_s("ca_file");
        let cert_file = table.optional_s("cert_file");
        let key_file = table.optional_s("key_file");
        let require = table.optional_s("require");
        let hints = table.optional("hints");
        table.finalize(None)?;
        Ok(Self {
            at: at?,
            user,
            password_file,
            ca_file,
            cert_file,
            key_file,
            require,
            hints,
        })
    }
}

#[cfg(feature = "store")]
impl StoreTable {
    /// Where the store is, and how it is used. Paths that are not absolute begin at `base`.
    pub(super) fn read(&self, base: &Path) -> Result<(StoreUrl, Access), Fault> {
        let at = &self.at;
        let url = StoreUrl::parse(&at.value);
        let url = url.map_err(|error| Fault::new(at.span, error.to_string()))?;
        if let Some(key) = url.parameters.keys().next() {
            let reason =
                format!("{key} does not belong behind a question mark here: give it its own key");
            return Err(Fault::new(at.span, reason));
        }
        if let (Some(user), Some(_)) = (&self.user, &url.user) {
            return Err(Fault::new(
                user.span,
                "at names a user already: remove one of both",
            ));
        }
        let path = |path: &Option<Spanned<String>>| path_of(path.as_ref(), base);
        let access = Access {
            user: self.user.as_ref().map(|user| user.value.clone()),
            password_file: path(&self.password_file)?,
            ca_file: path(&self.ca_file)?,
            cert_file: path(&self.cert_file)?,
            key_file: path(&self.key_file)?,
            requires_keeping: match &self.require {
                None => false,
                Some(text) => store::requires_keeping(&text.value)
                    .map_err(|reason| Fault::new(text.span, reason))?,
            },
            has_no_hints: self.hints == Some(false),
        };
        Ok((url, access))
    }
}

#[cfg(feature = "store")]
fn path_of(path: Option<&Spanned<String>>, base: &Path) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = path else {
        return Ok(None);
    };
    if path.value.is_empty() || path.value.contains('\0') {
        return Err(Fault::new(path.span, "this is no path: name a file"));
    }
    Ok(Some(base.join(&path.value)))
}
