//! One line per diagnostic, as compilers print it. In: diagnostics. Out: `path:line:col: error[SPMD101] name: message`.
//! Never: more than one line each. Next: `text.rs` for the long form.

use super::{condition, plain, positions};
use crate::source::{Diagnostic, Files};
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in diagnostics {
        let (file, start, _) = positions(diagnostic.place, files);
        let when = condition(diagnostic).map_or(String::new(), |when| format!(" ({when})"));
        writeln!(
            out,
            "{}:{}:{}: {}[{}] {}: {}{}",
            plain(&file.path),
            start.line,
            start.column,
            diagnostic.severity.as_str(),
            diagnostic.code,
            diagnostic.name,
            plain(&diagnostic.message),
            plain(&when),
        )?;
    }
    Ok(())
}
