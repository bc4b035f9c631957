//! What shells and manuals ask for. In: the description of the command line. Out: completions, a manual page. Never: a copy of the options.
//! Next: `args.rs`.

use super::args::{Arguments, CompletionsOptions};
use super::failure::Failure;
use super::{Outcome, output};
use clap::CommandFactory;

/// `spmd-check completions SHELL`
pub(super) fn completions(options: &CompletionsOptions) -> Result<Outcome, Failure> {
    let mut text: Vec<u8> = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "spmd-check", &mut text);
    output::write(|out| out.write_all(&text))?;
    Ok(Outcome::Clean)
}

/// `spmd-check man`: one page, with a section for each command.
pub(super) fn man() -> Result<Outcome, Failure> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    output::write(|out| {
        clap_mangen::Man::new(command.clone()).render(out)?;
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            writeln!(out, ".SH \"{}\"", format!("spmd-check {}", sub.get_name()).to_uppercase())?;
            let page = clap_mangen::Man::new(sub.clone());
            page.render_description_section(out)?;
            page.render_synopsis_section(out)?;
            page.render_options_section(out)?;
        }
        Ok(())
    })?;
    Ok(Outcome::Clean)
}
