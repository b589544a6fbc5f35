//! By which flags a command is told which group is meant.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::completions;

const GROUP: &str = "Which group";

// Which group is meant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Group {
    /// Where the group is: etcd://HOST,…, postgresql://USER@HOST/DATABASE (etcds, postgresqls with TLS), unix:SOCKET, file:CONFIG#ID or local: [environment: DISTLOCK_AT]
    #[arg(long, value_name = "PLACE", help_heading = GROUP, conflicts_with_all = ["local", "config", "id"])]
    pub(crate) at: Option<String>,

    /// The local group: the programs of this user on this host, also where the host has another
    #[arg(long, help_heading = GROUP, conflicts_with_all = ["socket", "config", "id", "state_dir"])]
    pub(crate) local: bool,

    /// The socket of this host's agent [environment: DISTLOCK_SOCKET]
    #[arg(long, value_name = "PATH", add = ArgValueCompleter::new(completions::files), help_heading = GROUP)]
    pub(crate) socket: Option<PathBuf>,

    /// The group's configuration, to be a member of it [environment: DISTLOCK_CONFIG]
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(completions::files), help_heading = GROUP)]
    pub(crate) config: Option<PathBuf>,

    /// Which member to be, 1 to 65535 [environment: DISTLOCK_ID]
    #[arg(long, value_name = "N", help_heading = GROUP,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) id: Option<u16>,

    /// Where the member keeps what must outlive it [environment: DISTLOCK_STATE_DIR]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::files), help_heading = GROUP)]
    pub(crate) state_dir: Option<PathBuf>,
}

impl Group {
    /// Whether nothing was said.
    pub(crate) const fn is_empty(&self) -> bool {
        let Self {
            at,
            local,
            socket,
            config,
            id,
            state_dir,
        } = self;
        at.is_none()
            && !*local
            && socket.is_none()
            && config.is_none()
            && id.is_none()
            && state_dir.is_none()
    }
}
