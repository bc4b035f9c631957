//! Files with new texts. In: paths, and the texts before and after. Out: the files, replaced in one step each, with their permissions. Never:
//! a file that changed since it was read, or whose encoding would not survive. Next: `fix.rs`.

use super::failure::Failure;
use std::fs;
use std::io::Write;
use std::path::Path;

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
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.spmd-check-{}", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create(&beside)?;
        file.write_all(mark)?;
        file.write_all(new.as_bytes())?;
        file.set_permissions(fs::metadata(&path)?.permissions())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        fail(&error)
    })
}
