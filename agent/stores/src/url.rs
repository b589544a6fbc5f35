//! Where a store is, in one word: `etcd://10.0.0.1,10.0.0.2?group=shop`.

use std::collections::BTreeMap;

use distlock_protocol::ledger::Host;
use percent_encoding::percent_decode_str;

/// Which kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// etcd, from 3.4.
    Etcd,
    /// PostgreSQL, from 12.
    Postgresql,
}

impl Kind {
    const fn default_port(self) -> u16 {
        match self {
            Self::Etcd => 2379,
            Self::Postgresql => 5432,
        }
    }
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    /// Of which kind it is.
    pub kind: Kind,
    /// Whether connections are sealed.
    pub is_sealed: bool,
    /// As whom to sign in.
    pub user: Option<String>,
    /// Its hosts, at least one.
    pub hosts: Vec<Host>,
    /// Which database, where the store has several.
    pub database: Option<String>,
    /// What follows the question mark, decoded.
    pub parameters: BTreeMap<String, String>,
}

/// Why a text is no [`StoreUrl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

fn wrong<T>(why: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError(why.into()))
}

impl StoreUrl {
    /// Reads `etcd://HOST,HOST:PORT`, `postgresql://USER@HOST/DATABASE` or the like: `etcds` and
    /// `postgresqls` seal connections, `postgres` means the same as `postgresql`. IPv6 addresses are in
    /// brackets. PostgreSQL's Unix socket is named by `?host=/run/postgresql`, in which directory it is, and
    /// `&port=5433` if its port is not the usual one.
    ///
    /// # Errors
    /// If it is none of these; if it has a password, which every user of the host could read in `ps`.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong(format!(
                "{text:?} has no scheme: write it like etcd://10.0.0.1,10.0.0.2"
            ));
        };
        let (kind, is_sealed) = match scheme {
            "etcd" => (Kind::Etcd, false),
            "etcds" => (Kind::Etcd, true),
            "postgresql" | "postgres" => (Kind::Postgresql, false),
            "postgresqls" => (Kind::Postgresql, true),
            _ => {
                return wrong(format!(
                    "there is no store {scheme:?}: there are etcd and postgresql, and with TLS \
                     etcds and postgresqls"
                ));
            }
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return wrong(
                "a password does not belong here, where ps(1) shows it to every user of this host: \
                 put it into a file, and name that by password_file",
            );
        }
        let user = user
            .map(decode)
            .transpose()?
            .filter(|user| !user.is_empty());
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if name == "password" {
                return wrong(
                    "a password does not belong here: name a file of it by password_file",
                );
            }
            if parameters.insert(name.clone(), value).is_some() {
                return wrong(format!("{name} is there twice"));
            }
        }
        let mut found = Vec::new();
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            found.push(tcp(host, kind)?);
        }
        if kind == Kind::Postgresql
            && let Some(directory) = parameters.remove("host")
        {
            if !directory.starts_with('/') {
                return wrong(format!(
                    "host={directory}: only the directory of a Unix socket is named so, like \
                     host=/run/postgresql; other hosts follow the //"
                ));
            }
            let number = parameters.remove("port").unwrap_or_default();
            let number = port(&number, kind)?;
            found.push(Host::Unix(format!("{directory}/.s.PGSQL.{number}")));
        }
        if found.is_empty() {
            return wrong(format!("{text:?} names no host"));
        }
        let database = Some(decode(path)?).filter(|path| !path.is_empty());
        if let (Kind::Etcd, Some(database)) = (kind, &database) {
            return wrong(format!(
                "etcd has no databases, so /{database} has no meaning: a group is named by \
                 ?group={database}"
            ));
        }
        Ok(Self {
            kind,
            is_sealed,
            user,
            hosts: found,
            database,
            parameters,
        })
    }
}

fn decode(text: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| UrlError(format!("{text:?} is not UTF-8")))?;
    if decoded.contains('\0') {
        return wrong(format!("{text:?} has a NUL in it"));
    }
    Ok(decoded.into_owned())
}

/// A host, with its port or without.
fn tcp(text: &str, kind: Kind) -> Result<Host, UrlError> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((name, port)) = rest.split_once(']') else {
            return wrong(format!("{text:?} has no closing bracket"));
        };
        if name.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong(format!("{name:?} in brackets is no IPv6 address"));
        }
        let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
        let Some(port) = port else {
            return wrong(format!(
                "{text:?}: after the bracket comes :PORT, or nothing"
            ));
        };
        (name, port)
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return wrong(format!("{text:?}: an IPv6 address belongs in brackets"));
            }
            Some(split) => split,
            None => (text, ""),
        }
    };
    let name = decode(name)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return wrong(format!("{text:?} names no host"));
    }
    let port = self::port(port, kind)?;
    Ok(Host::Tcp { name, port })
}

/// A port; the usual one if none is named.
fn port(text: &str, kind: Kind) -> Result<u16, UrlError> {
    match text {
        "" => Ok(kind.default_port()),
        text => match text.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => wrong(format!("{text:?} is no port: 1 to 65535")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        let name = name.to_owned();
        Host::Tcp { name, port }
    }

    #[test]
    fn hosts_ports_users_databases_and_parameters_are_read() {
        let url =
            StoreUrl::parse("etcd://10.0.0.1,b.example:2380,[::1]:9?group=shop&lease=5s").unwrap();
        assert_eq!((url.kind, url.is_sealed), (Kind::Etcd, false));
        let hosts = [
            host("10.0.0.1", 2379),
            host("b.example", 2380),
            host("::1", 9),
        ];
        assert_eq!(url.hosts, hosts);
        assert_eq!(url.parameters["group"], "shop");
        assert_eq!(url.parameters["lease"], "5s");
        let url = StoreUrl::parse("postgresqls://a%40b@db/shop%2F1").unwrap();
        assert!(url.is_sealed);
        assert_eq!(url.user.as_deref(), Some("a@b"));
        assert_eq!(url.database.as_deref(), Some("shop/1"));
        assert_eq!(url.hosts, [host("db", 5432)]);
        for (port, name) in [("", "5432"), ("&port=5433", "5433")] {
            let url = format!("postgres:///shop?host=/run/postgresql{port}");
            let url = StoreUrl::parse(&url).unwrap();
            let socket = format!("/run/postgresql/.s.PGSQL.{name}");
            assert_eq!(url.hosts, [Host::Unix(socket)]);
            assert!(url.parameters.is_empty());
        }
    }

    #[test]
    fn what_is_none_says_why() {
        for (text, why) in [
            ("10.0.0.1", "no scheme"),
            ("consul://a", "there is no store"),
            ("etcd://", "names no host"),
            ("etcd://a/b", "?group=b"),
            ("etcd://u:p@a", "password_file"),
            ("etcd://a?password=x", "password_file"),
            ("etcd://a?group=x&group=y", "twice"),
            ("etcd://a:0", "no port"),
            ("etcd://a:99999", "no port"),
            ("etcd://::1", "brackets"),
            ("etcd://[::1", "bracket"),
            ("etcd://[a]:1", "no IPv6 address"),
            ("etcd://[::1]x", "after the bracket"),
            ("etcd://a b", "names no host"),
            ("etcd://%ff@a", "UTF-8"),
            ("postgresql:///x?host=db", "Unix socket"),
            ("postgresql:///x?host=/run&port=0", "no port"),
        ] {
            let error = StoreUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(etcds?|postgresql)?(://)?[a:@/?=&,%0-9\\[\\]\\PC]{0,40}") {
            let _ = StoreUrl::parse(&text);
        }
    }
}
