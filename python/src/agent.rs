//! The agent, and what comes from it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use distlock::discovery::GroupOptions;
use distlock::status::SCHEMA;
use distlock::{Algorithm, DistMutex, ElectionAlgorithm, LockOptions, NodeId, OpenError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::handle::{Handle, Kind};

/// An agent of the process that has opened it.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Agent(distlock::Agent);

#[pymethods]
impl Agent {
    /// Finds the group and opens it. `member`: its number, and where it keeps its state.
    #[staticmethod]
    #[pyo3(signature = (*, at, local, directory, socket, config, member))]
    fn open(
        py: Python<'_>,
        at: Option<&str>,
        local: bool,
        directory: Option<PathBuf>,
        socket: Option<PathBuf>,
        config: Option<PathBuf>,
        member: (Option<u16>, Option<PathBuf>),
    ) -> PyResult<Self> {
        let (id, state_dir) = member;
        let mut options = GroupOptions::new();
        if let Some(at) = at {
            options = options.at(at);
        }
        if local || directory.is_some() {
            options = options.local();
        }
        if let Some(socket) = socket {
            options = options.socket(socket);
        }
        if let Some(config) = config {
            options = options.config(config);
        }
        if let Some(id) = id {
            let id = NodeId::new(id);
            let id = id.ok_or_else(|| PyValueError::new_err("a member's id is 1 to 65535"))?;
            options = options.id(id);
        }
        if let Some(state_dir) = state_dir {
            options = options.state_dir(state_dir);
        }
        let open = || -> Result<distlock::Agent, OpenError> {
            let choice = options.find()?;
            match directory {
                Some(directory) => distlock::Agent::local_in(directory),
                None => choice.open(),
            }
        };
        Ok(Self(py.detach(open).map_err(Failure::from)?))
    }

    #[getter]
    fn is_forked(&self) -> bool {
        self.0.is_forked()
    }

    /// The lease in seconds; `None` in the local group.
    #[getter]
    fn lease(&self) -> Option<f64> {
        self.0.lease().map(|lease| lease.as_secs_f64())
    }

    #[pyo3(signature = (name, *, shared, algorithm, command, abort_on_loss))]
    fn mutex(
        &self,
        py: Python<'_>,
        name: &[u8],
        shared: bool,
        algorithm: Option<&str>,
        command: Option<&str>,
        abort_on_loss: bool,
    ) -> PyResult<Handle> {
        let options = options(algorithm, command, abort_on_loss)?;
        let open = || self.0.mutex_with(name, &options);
        let mutex = py.detach(open).map_err(Failure::from)?;
        let mutex: std::sync::Arc<dyn DistMutex> = match shared {
            true => mutex.shared(),
            false => std::sync::Arc::new(mutex),
        };
        Ok(Handle::new(self.0.clone(), Kind::Mutex(mutex)))
    }

    #[pyo3(signature = (name, permits, *, algorithm, command, abort_on_loss))]
    fn semaphore(
        &self,
        py: Python<'_>,
        name: &[u8],
        permits: Option<u32>,
        algorithm: Option<&str>,
        command: Option<&str>,
        abort_on_loss: bool,
    ) -> PyResult<Handle> {
        let options = options(algorithm, command, abort_on_loss)?;
        let none = || PyValueError::new_err("a semaphore has at least one permit");
        let permits = permits
            .map(|permits| NonZeroU32::new(permits).ok_or_else(none))
            .transpose()?;
        let open = || self.0.semaphore_with(name, permits, &options);
        let semaphore = py.detach(open).map_err(Failure::from)?;
        Ok(Handle::new(self.0.clone(), Kind::Semaphore(semaphore)))
    }

    #[pyo3(signature = (name, *, algorithm, command, abort_on_loss))]
    fn election(
        &self,
        py: Python<'_>,
        name: &[u8],
        algorithm: Option<&str>,
        command: Option<&str>,
        abort_on_loss: bool,
    ) -> PyResult<Handle> {
        let options = options(None, command, abort_on_loss)?;
        let algorithm = algorithm.map(parse::<ElectionAlgorithm>).transpose()?;
        let open = || self.0.election_with(name, algorithm, &options);
        let election = py.detach(open).map_err(Failure::from)?;
        Ok(Handle::new(self.0.clone(), Kind::Election(election)))
    }

    /// What `distlock status --json` prints.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let status = py.detach(|| self.0.status()).map_err(Failure::from)?;
        let mut whole = json!(status);
        whole["schema"] = json!(SCHEMA);
        Ok(whole.to_string())
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

fn options(
    algorithm: Option<&str>,
    command: Option<&str>,
    abort_on_loss: bool,
) -> PyResult<LockOptions> {
    let mut options = LockOptions::new().abort_on_loss(abort_on_loss);
    if let Some(algorithm) = algorithm {
        options = options.algorithm(parse::<Algorithm>(algorithm)?);
    }
    if let Some(command) = command {
        options = options.command(command);
    }
    Ok(options)
}

fn parse<T: FromStr<Err: std::fmt::Display>>(name: &str) -> PyResult<T> {
    name.parse()
        .map_err(|error: T::Err| Failure::new("InvalidLock", error).into())
}
