//! Why a run ends without an answer. In: words, or diagnostics about a configuration. Out: words on standard error.
//! Never: a panic when nobody reads them. Next: `output.rs`.

use super::output;
use crate::config::Diagnostics;
use crate::render::{self, Color, Format};
use std::io::{self, Write};

/// A failure of the run itself.
#[derive(Debug)]
pub(super) enum Failure {
    Message {
        text: String,
        help: Option<String>,
    },
    /// The configuration or a rule file is wrong; all mistakes at once.
    Diagnostics {
        found: Diagnostics,
        format: Format,
        color: Color,
    },
}

impl Failure {
    pub fn message(text: String) -> Self {
        Failure::Message { text, help: None }
    }

    pub fn with_help(self, line: String) -> Self {
        match self {
            Failure::Message { text, .. } => Failure::Message { text, help: Some(line) },
            Failure::Diagnostics { .. } => self,
        }
    }

    /// Tells the user. A format for machines goes to standard output, where its reader waits for it.
    pub fn say(&self) {
        match self {
            Failure::Message { text, help } => {
                output::say(&format!("error: {text}"));
                if let Some(help) = help {
                    output::say(&format!("  help: {help}"));
                }
            }
            Failure::Diagnostics { found, format, color } => {
                // A reader that is gone cannot be told that it is gone.
                let _ = match format {
                    Format::Full | Format::Concise => write(found, *format, *color, &mut io::stderr().lock()),
                    _ => write(found, *format, *color, &mut io::stdout().lock()),
                };
                let count = output::plural(found.problems.len(), "mistake");
                output::say(&format!("error: the configuration has {count}"));
            }
        }
    }
}

fn write(found: &Diagnostics, format: Format, color: Color, out: &mut dyn Write) -> io::Result<()> {
    render::render(format, &found.problems, &found.files, color, out)
}
