//! Files of the user's: configuration, rules, baselines, sources. In: a path. Out: its bytes. Never: a device, a pipe, or more of a file
//! than can be of use: reading that would not end. Next: `walk.rs` for which sources are read.

use std::io::{Error, ErrorKind, Read};
use std::path::Path;

/// Larger files are no configuration, no rules and no baseline.
pub const MAX_BYTES: u64 = 64 << 20;

/// Larger source files are not checked.
pub const MAX_SOURCE_BYTES: usize = 4 << 20;

/// The bytes of a source file. Of one that is too large for being checked, a little more than the largest that would be, so that whoever
/// looks at it sees that.
pub fn read_source(path: &Path) -> Result<Vec<u8>, Error> {
    let length = regular(path)?;
    if length <= MAX_SOURCE_BYTES as u64 {
        return std::fs::read(path);
    }
    let mut bytes = Vec::with_capacity(MAX_SOURCE_BYTES + 8);
    std::fs::File::open(path)?.take(MAX_SOURCE_BYTES as u64 + 8).read_to_end(&mut bytes)?;
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        // The last character is cut.
        bytes.truncate(error.valid_up_to());
    }
    Ok(bytes)
}

/// The bytes of a regular file. Errors: those of the system, and a file that is none of these.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let length = regular(path)?;
    if length > MAX_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    std::fs::read(path)
}

/// The length of a file that is no folder, device or pipe.
fn regular(path: &Path) -> Result<u64, Error> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(metadata.len())
}

/// The same as text.
pub fn read_to_string(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
