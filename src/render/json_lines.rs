//! One JSON object a line, for streams. In: diagnostics. Out: the objects of `json.rs`. Never: an enclosing array.
//! Next: `json.rs` for the shape.

use super::json::object;
use crate::source::{Diagnostic, Files};
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in diagnostics {
        serde_json::to_writer(&mut *out, &object(diagnostic, files))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
