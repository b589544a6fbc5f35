//! A printer that speaks the Internet Printing Protocol (RFC 8011).

use std::io;
use std::thread;
use std::time::Duration;

use ipp::model::{DelimiterTag, JobState, StatusCode};
use ipp::operation::IppOperation;
use ipp::prelude::*;
use ipp::request::IppRequestResponse;

use super::{CONNECT_TIMEOUT, Deadline, Jobs, lost};
use crate::Result;
use crate::document::Document;

pub(super) use ipp::prelude::Uri;

/// How long after the last look the state of a job is looked at again: at first, and at most.
const POLL_FIRST: Duration = Duration::from_millis(2);
const POLL_LAST: Duration = Duration::from_millis(500);

/// Prints one document at `uri`, as one job or as a job for each line.
pub(super) fn print(
    uri: &Uri,
    jobs: Jobs,
    mut document: Document,
    deadline: Deadline,
    held: &dyn Fn() -> bool,
) -> Result<()> {
    let title = document.title.clone();
    let queue = Queue {
        uri: uri.clone(),
        deadline,
        held,
    };
    match jobs {
        Jobs::File => queue.print(&title, IppPayload::new(document.into_stream())),
        Jobs::Line => {
            while let Some(line) = document.next_line()? {
                if !held() {
                    return Err(lost(&title));
                }
                queue.print(&title, IppPayload::new(io::Cursor::new(line)))?;
            }
            Ok(())
        }
    }
}

/// The queue of an IPP printer, used by one document.
struct Queue<'a> {
    uri: Uri,
    deadline: Deadline,
    held: &'a dyn Fn() -> bool,
}

impl Queue<'_> {
    /// Prints one job, and returns once it is completed. A job that we give up is canceled.
    fn print(&self, title: &str, payload: IppPayload) -> Result<()> {
        let job = self.create(title)?;
        let sent = IppOperationBuilder::send_document(self.uri.clone(), job, payload)
            .document_format("text/plain")
            .last(true)
            .build()
            .map_err(Into::into)
            .and_then(|operation| accepted(self.send(operation)?));
        sent.and_then(|_| self.await_end(job, title))
            .inspect_err(|_| {
                // The error that brought us here is told; that this one failed too would not help.
                let _ = IppOperationBuilder::cancel_job(self.uri.clone(), job)
                    .build()
                    .map_err(Into::into)
                    .and_then(|operation| self.send(operation));
            })
    }

    /// Opens a job. The printer may be busy with that of somebody who takes no turns with us.
    fn create(&self, title: &str) -> Result<i32> {
        let mut pause = POLL_FIRST;
        loop {
            let operation = IppOperationBuilder::create_job(self.uri.clone())
                .job_name(title)
                .build()?;
            let response = self.send(operation)?;
            if response.header().status_code() != StatusCode::ServerErrorBusy {
                let response = accepted(response)?;
                return integer(&response, "job-id")
                    .ok_or_else(|| "the printer made a job without a number".into());
            }
            thread::sleep(pause.min(self.deadline.remaining()?));
            pause = (pause * 2).min(POLL_LAST);
        }
    }

    /// Looks at the job until it is completed, canceled or aborted (RFC 8011, 5.3.7).
    fn await_end(&self, job: i32, title: &str) -> Result<()> {
        let mut pause = POLL_FIRST;
        loop {
            let operation =
                IppOperationBuilder::get_job_attributes(self.uri.clone(), job).build()?;
            let response = accepted(self.send(operation)?)?;
            match integer(&response, "job-state").and_then(JobState::from_i32) {
                Some(JobState::Completed) => return Ok(()),
                Some(end @ (JobState::Canceled | JobState::Aborted)) => {
                    return Err(format!("the printer ended job {job} ({title}): {end:?}").into());
                }
                Some(_) if !(self.held)() => return Err(lost(title)),
                Some(_) => {}
                None => return Err(format!("the printer tells no state of job {job}").into()),
            }
            thread::sleep(pause.min(self.deadline.remaining()?));
            pause = (pause * 2).min(POLL_LAST);
        }
    }

    fn send(&self, operation: impl IppOperation) -> Result<IppRequestResponse> {
        let client = IppClient::builder(self.uri.clone())
            // A job is also canceled when its time is over, and that may take some, too.
            .request_timeout(self.deadline.remaining().unwrap_or(CONNECT_TIMEOUT))
            .build();
        let response = client.send(operation);
        response.map_err(|error| format!("the printer at {}: {error}", self.uri).into())
    }
}

fn accepted(response: IppRequestResponse) -> Result<IppRequestResponse> {
    let status = response.header().status_code();
    if status.is_success() {
        Ok(response)
    } else {
        Err(format!("the printer refuses: {status}").into())
    }
}

fn integer(response: &IppRequestResponse, name: &str) -> Option<i32> {
    let job = response
        .attributes()
        .first_of(DelimiterTag::JobAttributes)?;
    let value = job.get(name)?.value();
    value.as_integer().or_else(|| value.as_enum()).copied()
}
