//! Standard output and standard error. In: bytes and lines. Out: the same, written once, in one piece.
//! Never: a panic or a message because the reader went away. Next: `check.rs`.

use super::args::ColorChoice;
use super::failure::Failure;
use crate::render::Color;
use std::io::{self, BufWriter, IsTerminal, Write};

/// Writes to standard output through a buffer. A closed pipe ends the writing, not the run: `| head` is no failure.
pub(super) fn write(body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result = body(&mut out).and_then(|()| out.flush());
    // Dropping the buffer would write the rest again, into the same closed pipe.
    let (_stdout, _rest) = out.into_parts();
    match result {
        Ok(()) => Ok(()),
        Err(error) if is_broken_pipe(&error) => Ok(()),
        Err(error) => Err(Failure::message(format!("cannot write to standard output: {error}"))),
    }
}

/// One line on standard error.
pub(super) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether a person reads standard error as it is written.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether the text formats are coloured.
pub(super) fn color(choice: ColorChoice) -> Color {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let coloured = match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
            !set("NO_COLOR") && !dumb && (set("FORCE_COLOR") || io::stdout().is_terminal())
        }
    };
    if coloured { Color::Ansi } else { Color::Plain }
}

/// `1 error`, `2 errors`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Errors arrive wrapped by the serialiser and by the renderer.
fn is_broken_pipe(error: &io::Error) -> bool {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return true;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|inner| inner.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        source = inner.source();
    }
    false
}
