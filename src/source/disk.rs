//! Small files of the user's: configuration, rules, baselines. In: a path. Out: its bytes. Never: a device, a pipe or a file so large
//! that it can only be a mistake: reading one would not end. Next: `walk.rs` for source files.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Larger files are no configuration, no rules and no baseline.
pub const MAX_BYTES: u64 = 64 << 20;

/// The bytes of a regular file. Errors: those of the system, and a file that is none of these.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    std::fs::read(path)
}

/// The same as text.
pub fn read_to_string(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
