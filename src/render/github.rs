//! Workflow commands of GitHub Actions. In: diagnostics. Out: one `::error file=..::message` line each, shown in the
//! diff. Never: a raw newline or `%` inside a value. Next: `sarif.rs` for code scanning.

use super::{condition, positions};
use crate::source::{Diagnostic, Files, Severity};
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in diagnostics {
        let (file, start, end) = positions(diagnostic.place, files);
        let command = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        // Columns are refused by GitHub when the range spans lines.
        let columns = match start.line == end.line {
            true => format!("col={},endColumn={},", start.column, end.column),
            false => String::new(),
        };
        let mut message = diagnostic.message.clone();
        let primary = Some(&diagnostic.primary).filter(|text| !text.is_empty());
        for line in primary.into_iter().chain(condition(diagnostic).iter()).chain(&diagnostic.notes) {
            message = format!("{message}\n{line}");
        }
        for help in &diagnostic.help {
            message = format!("{message}\nhelp: {help}");
        }
        writeln!(
            out,
            "::{command} file={},line={},endLine={},{columns}title={}::{}",
            property(&file.path),
            start.line,
            end.line,
            property(&format!("{} {}", diagnostic.code, diagnostic.name)),
            data(&message),
        )?;
    }
    Ok(())
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
