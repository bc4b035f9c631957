//! `spmd-check dump-ir`, hidden: the lowered program, for those who write rules and lowering. In: files. Out: text.
//! Never: a stable format. Next: `ir/`.

use super::args::DumpOptions;
use super::failure::Failure;
use super::project::{self, Input};
use super::{Outcome, engine, output};
use crate::render::Format;

pub(super) fn run(options: &DumpOptions) -> Result<Outcome, Failure> {
    let input = Input::new(&options.input)?;
    let config = project::configure(&input, &options.config, Format::Full, output::color(options.shared.color))?;
    let pool = project::pool(&options.shared)?;
    let project = pool.install(|| project::read(&input, &config, &options.shared))?;
    let text = pool.install(|| engine::dump_ir(&project.files));
    output::write(|out| out.write_all(text.as_bytes()))?;
    Ok(if project.incomplete { Outcome::Incomplete } else { Outcome::Clean })
}
