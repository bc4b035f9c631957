//! Files with new texts. In: paths, and the texts before and after. Out: the files, replaced in one step each, with their permissions. Never:
//! a source file that changed since it was read, or whose encoding would not survive; half of a file. Next: `fix.rs`.

use super::failure::Failure;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Files left by programs that were killed, beside which another one is made.
const MOST_LEFT: usize = 100;

const MARK: &[u8] = b"\xef\xbb\xbf";

/// Replaces the text of a file: a reader sees the old one or the new one, never a part.
pub(super) fn replace(path: &Path, shown: &str, old: &str, new: &str) -> Result<(), Failure> {
    let fail = |why: &dyn std::fmt::Display| Failure::message(format!("cannot write `{shown}`: {why}"));
    // A link stays a link: what it leads to is replaced.
    let path = fs::canonicalize(path).map_err(|error| fail(&error))?;
    let bytes = fs::read(&path).map_err(|error| fail(&error))?;
    let (mark, body) = match bytes.strip_prefix(MARK) {
        Some(body) => (MARK, body),
        None => (&[][..], bytes.as_slice()),
    };
    if body != old.as_bytes() {
        return Err(match crate::syntax::decode(&bytes) {
            Ok(text) if text == old => fail(&"it is not UTF-8"),
            _ => fail(&"it has changed since it was read"),
        });
    }
    put(&path, &[mark, new.as_bytes()]).map_err(|error| fail(&error))
}

/// Writes a file in one step: whoever looks finds the old one or the new one, also where the disk is full, the folder may not be
/// written or the program is interrupted meanwhile. Permissions stay, a link stays a link.
pub(super) fn put(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let path = target(path)?;
    let old = match fs::metadata(&path) {
        // Into a device or a pipe there is no other way.
        Ok(metadata) if !metadata.is_file() => return write_through(&path, parts),
        Ok(metadata) => Some(metadata.permissions()),
        Err(_) => None,
    };
    let _held = interrupt::hold();
    let (beside, mut file) = create_beside(&path)?;
    let written = (|| {
        parts.iter().try_for_each(|part| file.write_all(part))?;
        old.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

fn write_through(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = fs::File::options().write(true).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// The file that a path leads to, which need not exist.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(link) => Ok(path.parent().unwrap_or(Path::new("")).join(link)),
            Err(_) => Ok(path.to_owned()),
        },
        Err(error) => Err(error),
    }
}

/// A new file in the same folder, so that it can be moved to its place in one step. Its name is short: that of the file may be as long as
/// a name can be.
fn create_beside(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut number = 0;
    loop {
        let beside = folder.join(format!(".spmd-check-{}-{number}", std::process::id()));
        match fs::File::options().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((beside, file)),
            // Left by a program that was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MOST_LEFT => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// An interruption waits until the file is in its place, so that nothing is left lying beside it.
#[cfg(unix)]
mod interrupt {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::{flag, low_level};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, OnceLock};

    struct Signals {
        /// Nothing is being written: a signal does what it always does.
        idle: Arc<AtomicBool>,
        /// The one that came in meanwhile.
        came: Arc<AtomicUsize>,
    }

    fn signals() -> &'static Signals {
        static SIGNALS: OnceLock<Signals> = OnceLock::new();
        SIGNALS.get_or_init(|| {
            let signals = Signals { idle: Arc::new(AtomicBool::new(true)), came: Arc::default() };
            for signal in [SIGINT, SIGTERM] {
                // Without them, an interruption may leave a file beside the one that was to be written; that is all.
                let _ = flag::register_conditional_default(signal, signals.idle.clone());
                let _ = flag::register_usize(signal, signals.came.clone(), usize::try_from(signal).unwrap_or(0));
            }
            signals
        })
    }

    /// Signals wait as long as this lives.
    pub struct Held;

    pub fn hold() -> Held {
        signals().idle.store(false, Ordering::SeqCst);
        Held
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let signals = signals();
            signals.idle.store(true, Ordering::SeqCst);
            if let Ok(signal @ 1..) = i32::try_from(signals.came.load(Ordering::SeqCst)) {
                let _ = low_level::emulate_default_handler(signal);
            }
        }
    }
}

#[cfg(not(unix))]
mod interrupt {
    pub fn hold() {}
}
