//! The command line. In: arguments, the environment, files. Out: bytes on standard output, words on standard error, an
//! exit code. Never: deciding what is wrong with a program. Next: `args.rs` for the options, `check.rs` for the main
//! command.

mod args;
mod baseline;
mod cache;
mod check;
mod diff_base;
mod dump;
pub(crate) mod engine;
mod explain;
mod failure;
mod fix;
mod gradients;
mod graph;
mod inferred;
mod init;
mod output;
mod plan;
mod project;
mod report;
mod rules;
mod settings;
mod shell;
mod types;
mod watch;
mod write;

pub use args::Command;

use args::Arguments;
use clap::Parser;
use clap::error::ErrorKind;
use failure::Failure;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// What a command ends with when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Clean,
    Findings,
    /// The run went on, but a part of it failed and said so.
    Incomplete,
}

/// The command that was asked for; `Err` when the question is already answered (help, version, a mistake).
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, ExitCode> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    Arguments::try_parse_from(&arguments).map(|parsed| parsed.command).map_err(|error| {
        if error.kind() == ErrorKind::InvalidSubcommand
            && let Some(path) = arguments.get(1).filter(|argument| looks_like_path(argument))
        {
            let path = path.to_string_lossy();
            Failure::message(format!("`{path}` is not a command"))
                .with_help(format!("to check it, run `spmd-check check {path}`"))
                .say();
            return ExitCode::from(2);
        }
        // Nobody may be reading; there is nobody left to tell.
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// Runs a command; `serve` is the language server, which says whether its client ended it in the right order. A bug of ours ends in exit code 2, like every other failure of the run itself.
pub fn run(command: Command, serve: fn() -> bool) -> ExitCode {
    let result = std::panic::catch_unwind(|| match command {
        Command::Server(_) => Ok(if serve() { Outcome::Clean } else { Outcome::Findings }),
        Command::Check(options) => check::run(&options),
        Command::Types(options) => types::run(&options),
        Command::Gradients(options) => gradients::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Rules(options) => rules::run(&options),
        Command::Init(options) => init::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Graph(options) => graph::run(&options),
        Command::Completions(options) => shell::completions(&options),
        Command::Man => shell::man(),
        Command::DumpIr(options) => dump::run(&options),
    });
    match result {
        Ok(Ok(Outcome::Clean)) => ExitCode::SUCCESS,
        Ok(Ok(Outcome::Findings)) => ExitCode::from(1),
        Ok(Ok(Outcome::Incomplete)) => ExitCode::from(2),
        Ok(Err(failure)) => {
            failure.say();
            ExitCode::from(2)
        }
        Err(_) => {
            Failure::message("internal error: this is a bug in spmd-check, not in the checked program".to_owned())
                .say();
            ExitCode::from(2)
        }
    }
}

fn looks_like_path(argument: &OsString) -> bool {
    let text = argument.to_string_lossy();
    text == "-" || text.contains(['/', '.']) || Path::new(argument).exists()
}
