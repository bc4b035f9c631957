//! `spmd-check plan`. In: a mesh, a shape and placements, or a file of questions. Out: what PyTorch's redistribution planner
//! does. Never: planning itself. Next: `plan/`.

use super::args::{PlanDevice, PlanFormat, PlanOptions};
use super::failure::Failure;
use super::{Outcome, output};
use crate::plan::{self, Defaults, Device, Dtype, Kind, Machine, Mesh, Question, Refusal};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

pub(super) fn run(options: &PlanOptions) -> Result<Outcome, Failure> {
    let dtype = Dtype::parse(&options.dtype).map_err(Failure::message)?;
    // The recorded answers of the run time count what a CPU group issues.
    let usual = if options.batch.is_some() { Device::Cpu } else { Device::Cuda };
    let device = match options.device {
        Some(PlanDevice::Cpu) => Device::Cpu,
        Some(PlanDevice::Cuda) => Device::Cuda,
        None => usual,
    };
    let defaults = Defaults { dtype, machine: Machine::new(device, options.devices_per_host) };
    match &options.batch {
        Some(path) => batch(path, defaults),
        None => one(options, defaults),
    }
}

/// Answers one question. A refusal is a finding: the program that asks for it fails.
fn one(options: &PlanOptions, defaults: Defaults) -> Result<Outcome, Failure> {
    let answered = question(options, defaults).and_then(|question| Ok((question.plan()?, question)));
    match (answered, options.format) {
        (Ok((found, question)), PlanFormat::Text) => {
            output::write(|out| out.write_all(plan::plan_text(&question, &found).as_bytes()))?;
            Ok(Outcome::Clean)
        }
        (Ok((found, question)), PlanFormat::Json) => {
            output::write(|out| writeln!(out, "{:#}", plan::plan_json(&question, &found)))?;
            Ok(Outcome::Clean)
        }
        (Err(refusal), PlanFormat::Json) => {
            output::write(|out| writeln!(out, "{:#}", plan::refusal_json(&refusal)))?;
            Ok(if refusal.kind == Kind::InputError { Outcome::Incomplete } else { Outcome::Findings })
        }
        (Err(refusal), PlanFormat::Text) if refusal.kind == Kind::InputError => Err(with_help(refusal)),
        (Err(refusal), PlanFormat::Text) => {
            output::write(|out| {
                writeln!(out, "error: {}", refusal.words)?;
                writeln!(out, "  = torch: {}: {}", refusal.kind.name(), refusal.text)?;
                match &refusal.help {
                    Some(help) => writeln!(out, "  = help: {help}"),
                    None => Ok(()),
                }
            })?;
            Ok(Outcome::Findings)
        }
    }
}

fn with_help(refusal: Refusal) -> Failure {
    let failure = Failure::message(refusal.words);
    match refusal.help {
        Some(help) => failure.with_help(help),
        None => failure,
    }
}

fn question(options: &PlanOptions, defaults: Defaults) -> Result<Question, Refusal> {
    let text = |word: &Option<String>| word.clone().unwrap_or_default();
    let mesh = Mesh::parse(&text(&options.mesh)).map_err(|words| Refusal::input(format!("--mesh: {words}")))?;
    let shape =
        plan::parse_shape(&text(&options.shape)).map_err(|words| Refusal::input(format!("--shape: {words}")))?;
    let source = plan::parse_placements(&text(&options.source)).map_err(Refusal::input)?;
    let target = plan::parse_placements(&text(&options.target)).map_err(Refusal::input)?;
    Question::new(mesh, shape, defaults.dtype, defaults.machine, &source, &target)
}

/// Answers a file line by line. A line that is no question is answered with its error, and the run says so at its end.
fn batch(path: &Path, defaults: Defaults) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| Failure::message(format!("cannot read {}: {error}", path.display()));
    let mut input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).map_err(failed)?)),
    };
    let mut lost = 0;
    let mut broken = None;
    output::write(|out| {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
            if let Some(answer) = plan::answer(&line, number, defaults) {
                lost += usize::from(!answer.understood);
                writeln!(out, "{}", answer.line)?;
            }
        }
        Ok(())
    })?;
    if let Some(error) = broken {
        return Err(failed(error));
    }
    if lost > 0 {
        output::say(&format!(
            "error: {} could not be read; each says why in its answer",
            output::plural(lost, "question")
        ));
        return Ok(Outcome::Incomplete);
    }
    Ok(Outcome::Clean)
}
