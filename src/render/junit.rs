//! JUnit XML, which most CI systems show as test results. In: diagnostics. Out: one test suite per file with findings.
//! Never: a character XML does not allow. Next: `concise.rs`, whose line is the text of a failure.

use super::{condition, plain, positions};
use crate::source::{Diagnostic, Files};
use std::collections::BTreeMap;
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    let mut suites: BTreeMap<&str, Vec<&Diagnostic>> = BTreeMap::new();
    for diagnostic in diagnostics {
        suites.entry(&files[diagnostic.place.file].path).or_default().push(diagnostic);
    }
    let total = diagnostics.len();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    // Consumers refuse a report without a test, so a clean run is one test that passes.
    if suites.is_empty() {
        writeln!(out, "<testsuites name=\"spmd-check\" tests=\"1\" failures=\"0\" errors=\"0\">")?;
        writeln!(out, "  <testsuite name=\"spmd-check\" tests=\"1\" failures=\"0\" errors=\"0\">")?;
        writeln!(out, "    <testcase name=\"no findings\" classname=\"spmd-check\"/>")?;
        writeln!(out, "  </testsuite>")?;
        return writeln!(out, "</testsuites>");
    }
    writeln!(out, "<testsuites name=\"spmd-check\" tests=\"{total}\" failures=\"{total}\" errors=\"0\">")?;
    for (path, rows) in suites {
        let (path, count) = (escape(path), rows.len());
        writeln!(out, "  <testsuite name=\"{path}\" tests=\"{count}\" failures=\"{count}\" errors=\"0\">")?;
        for diagnostic in rows {
            let (_, start, _) = positions(diagnostic.place, files);
            let (name, line, column) = (escape(diagnostic.name), start.line, start.column);
            let message = escape(&diagnostic.message);
            let when = condition(diagnostic).map_or(String::new(), |when| format!(" ({})", escape(&when)));
            let title = format!("{}.{name}", diagnostic.code);
            writeln!(out, "    <testcase name=\"{title} at line {line}\" classname=\"{path}\">")?;
            write!(out, "      <failure type=\"{}\" message=\"{message}\">", diagnostic.severity.as_str())?;
            writeln!(out, "{path}:{line}:{column}: {message}{when}</failure>")?;
            writeln!(out, "    </testcase>")?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")
}

fn escape(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
