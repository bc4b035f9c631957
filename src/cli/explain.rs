//! `spmd-check explain`. In: a code or a name. Out: its page, or the list of all. Never: a page of its own;
//! `diagnostics/` holds them. Next: `check.rs` for the failure on an unknown code.

use super::args::ExplainOptions;
use super::check::{unknown_code, whole};
use super::failure::Failure;
use super::{Outcome, engine, output};

pub(super) fn run(options: &ExplainOptions) -> Result<Outcome, Failure> {
    let Some(word) = &options.code else {
        output::write(|out| engine::CODES.iter().try_for_each(|(code, name)| writeln!(out, "{code}  {name}")))?;
        return Ok(Outcome::Clean);
    };
    let page = engine::page(word).or_else(|| engine::page(&whole(word)));
    let page = page.ok_or_else(|| unknown_code(word, ""))?;
    output::write(|out| writeln!(out, "{}", page.trim_end()))?;
    Ok(Outcome::Clean)
}
