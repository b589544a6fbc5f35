//! Where an agent's metrics are served.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml_span::de_helpers::TableHelper;
use toml_span::{DeserError, Deserialize, Spanned, Value};

use super::fault::Fault;

/// Where the program `distlock agent` serves its metrics by HTTP, for Prometheus and the like.
///
/// ```
/// use distlock::Config;
/// use distlock::config::MetricsAddress;
///
/// let text = r#"
///     [metrics]
///     listen = "tcp:127.0.0.1:9717"
///     [group]
///     name = "shop"
///     [[member]]
///     id = 1
///     address = "udp:127.0.0.1:7401"
/// "#;
/// let config: Config = text.parse()?;
/// let Some(MetricsAddress::Tcp(address)) = config.metrics() else {
///     panic!("it is served by TCP");
/// };
/// assert_eq!(address.port(), 9717);
/// # Ok::<(), distlock::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A Unix stream socket, at an absolute path.
    Unix(PathBuf),
    /// A port on loopback.
    Tcp(SocketAddr),
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A `[metrics]`.
pub(super) struct Metrics {
    listen: Spanned<String>,
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let listen = table.required_s("listen");
        table.finalize(None)?;
        Ok(Self { listen: listen? })
    }
}

impl Metrics {
    /// Where it says.
    pub(super) fn read(&self) -> Result<MetricsAddress, Fault> {
        let text = &self.listen.value;
        let fault = |why: &str| {
            let meant = "\"unix:/run/distlock/metrics.sock\" or \"tcp:127.0.0.1:9717\"";
            let reason = format!("listen = {text:?} {why}: write it like {meant}");
            Fault::new(self.listen.span, reason)
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let is_path = Path::new(path).is_absolute() && !path.contains('\0');
            let path = is_path.then(|| MetricsAddress::Unix(path.into()));
            return path.ok_or_else(|| fault("is no absolute path"));
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            return Err(fault("is no address"));
        };
        let address: SocketAddr = address
            .parse()
            .map_err(|_| fault("is no IP address with a port"))?;
        if !address.ip().is_loopback() {
            return Err(fault(
                "is not on loopback, and whoever reaches it sees the names of locks",
            ));
        }
        Ok(MetricsAddress::Tcp(address))
    }
}
