//! `distlock sim`: the algorithms in the simulator, measured, drawn, and compared with the books.

pub(crate) mod args;
mod compare;
mod report;
mod timeline;

use std::fmt::Display;
use std::process::ExitCode;

use distlock_agent::protocol::{Algorithm, Time};
use distlock_lab::costs::{Body, Load, Run, Setup, Spread, measure};
use distlock_lab::figures;

use crate::diagram::{self, Timeline, Wanted};
use crate::exit::{self, Failure};
use args::{Figure, Sim};
use timeline::{Frame, timeline};

/// How many nodes where nobody says how many.
const NODES: u16 = 5;

/// What the figure does not have.
const DEFERRED: &str = "REPLY is the figure's OK. DEFERRED, from Jones's lecture, says: I got it, \
                        and cannot reply yet.";

/// How many nodes at most where links and leases are simulated too.
const MOST_WHOLE_NODES: u16 = 64;

/// Does what is asked of the simulator.
///
/// # Errors
/// 64 if the options do not fit together; 66, 69, 74 or 77 if a file or standard output cannot be
/// written; 69 if the run broke a rule, which is a bug.
pub(crate) fn sim(args: &Sim) -> Result<ExitCode, Failure> {
    if args.compare {
        return compare::compare(args);
    }
    let algorithm = args.algorithm.ok_or_else(|| usage("which algorithm?"))?;
    diagram::check(&wanted(args))?;
    if let Some(Figure::RicartAgrawala) = args.figure {
        return figure_6_16(args, algorithm);
    }
    let setup = setup(args, algorithm)?;
    let run = measure(&setup)?;
    let report = report::report(&setup, &run);
    let timeline = shown(&setup, &run);
    diagram::write(&wanted(args), &timeline, &title(&setup), &report)?;
    exit::print(report.as_bytes(), "the report")
}

/// Figure 6.16, with processes that are counted from 0 as there.
fn figure_6_16(args: &Sim, algorithm: Algorithm) -> Result<ExitCode, Failure> {
    if algorithm != Algorithm::RicartAgrawala {
        return Err(usage(
            "figure 6.16 is one of ricart-agrawala; name that algorithm",
        ));
    }
    let scene = figures::figure_6_16(args.cs.unwrap_or(3.0))?;
    let frame = Frame {
        span: (Time::ZERO, scene.end),
        unit: scene.unit,
        members: 3,
        first: 0,
        has_stamps: true,
        patience: f64::INFINITY,
    };
    let timeline = timeline(&scene.history, frame);
    let title = "Figure 6.16: processes 0 and 2 ask at once, and the lower timestamp wins";
    let story = format!("{}\n{DEFERRED}\n", diagram::story(&timeline));
    diagram::write(&wanted(args), &timeline, title, &story)?;
    exit::print(format!("{title}\n\n{story}").as_bytes(), "the figure")
}

/// What a diagram of the run shows: what was measured.
fn shown(setup: &Setup, run: &Run) -> Timeline {
    let patience = match (setup.body, setup.spread) {
        (Body::Engines, _) => f64::INFINITY,
        (Body::Nodes { .. }, Spread::Constant) => 1.0,
        (Body::Nodes { .. }, Spread::Exponential) => 5.0,
    };
    let frame = Frame {
        span: (run.since, run.since + run.costs.elapsed),
        unit: run.costs.unit,
        members: setup.members,
        first: 1,
        has_stamps: false,
        patience,
    };
    timeline(&run.history, frame)
}

/// The files that are asked for.
fn wanted(args: &Sim) -> Wanted<'_> {
    Wanted {
        diagram: args.trace.as_deref(),
        shiviz: args.shiviz.as_deref(),
        less: "take fewer --nodes or --entries",
        command: "sim",
    }
}

fn title(setup: &Setup) -> String {
    let load = match setup.load {
        Load::Light => "light load",
        Load::Heavy => "heavy load",
        Load::Burst => "a burst",
    };
    format!(
        "{} among {} processes, {load}",
        setup.algorithm, setup.members
    )
}

/// The run that the options ask for.
fn setup(args: &Sim, algorithm: Algorithm) -> Result<Setup, Failure> {
    let members = match args.nodes[..] {
        [] => NODES,
        [members] => members,
        _ => {
            return Err(usage(
                "several sizes at once are for --compare; give one --nodes",
            ));
        }
    };
    let body = if args.loss == 0 && args.crash.is_empty() {
        Body::Engines
    } else {
        Body::Nodes { quorum: true }
    };
    let load = Load::from(args.load);
    if load == Load::Burst && args.entries.is_some() {
        return Err(usage(
            "in a burst every node enters once; leave --entries out",
        ));
    }
    if body != Body::Engines && members > MOST_WHOLE_NODES {
        return Err(usage(format_args!(
            "with --loss and --crash at most {MOST_WHOLE_NODES} nodes are simulated, \
             not {members}; take fewer"
        )));
    }
    check_crashes(args, members)?;
    let keeps_history = args.trace.is_some() || args.shiviz.is_some();
    let few = match (load, body) {
        (Load::Burst, _) => None,
        // More would be too long to look at.
        _ if keeps_history => Some(2 * u64::from(members)),
        (_, Body::Nodes { .. }) => Some(100),
        (_, Body::Engines) => None,
    };
    let usual = Setup::new(algorithm, members, load, body);
    Ok(Setup {
        spread: args.delay.into(),
        loss: args.loss,
        crashes: args.crash.clone(),
        inside: args.cs.unwrap_or(usual.inside),
        entries: args.entries.or(few),
        seed: args.seed,
        keeps_history,
        ..usual
    })
}

/// Who crashes must be there, and a majority of the voters must be left, or nobody would enter any
/// more.
fn check_crashes(args: &Sim, members: u16) -> Result<(), Failure> {
    for (place, crash) in args.crash.iter().enumerate() {
        let node = crash.node;
        if node.as_u16() > members {
            return Err(usage(format_args!(
                "node {node} cannot crash: the nodes are 1 to {members}"
            )));
        }
        if args.crash[..place].iter().any(|other| other.node == node) {
            return Err(usage(format_args!("node {node} can crash only once")));
        }
    }
    let voters = members.min(7);
    let crashed = args
        .crash
        .iter()
        .filter(|crash| crash.node.as_u16() <= voters);
    let left = usize::from(voters) - crashed.count();
    if left * 2 <= usize::from(voters) {
        return Err(usage(format_args!(
            "nobody enters any more when {left} of the {voters} voters are left; \
             let more than half stay"
        )));
    }
    Ok(())
}

fn usage(message: impl Display) -> Failure {
    Failure::usage(message, "sim")
}
