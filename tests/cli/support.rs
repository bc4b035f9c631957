//! A folder for one test and the program run inside it. In: files and arguments. Out: [`Session`] results.
//! Never: state shared between tests. Next: any of the tests beside this file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A line in which every version of the checker sees an error: the annotation does not parse.
pub const BAD: &str = "x = f()  # spmd: {{\n";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A folder that is its own project, removed at the end.
pub struct Session {
    pub folder: PathBuf,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Session {
    /// A folder with an empty configuration, so that nothing above it takes part.
    pub fn new() -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("spmd-check-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let session = Session { folder };
        session.write("spmd-check.toml", "");
        session
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folders can be made");
        std::fs::write(path, text).expect("files can be written");
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spmd-check"));
        command.args(arguments).current_dir(&self.folder);
        for name in ["NO_COLOR", "FORCE_COLOR", "TERM"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "")
    }

    pub fn run_with(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // The program may end without reading its input.
        let _ = child.stdin.take().expect("standard input is a pipe").write_all(stdin.as_bytes());
        let output = child.wait_with_output().expect("the program ends");
        Ran {
            code: output.status.code().expect("the program is not killed by a signal"),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A file of this repository.
pub fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
