//! Addresses of files. In: a `file:` address, or a path. Out: the other one. Never: the file system. Next: `workspace.rs`.

use lsp_types::Uri;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The path of a `file:` address; none for documents that are no files of this machine.
pub fn path(uri: &Uri) -> Option<PathBuf> {
    let text = uri.as_str();
    let rest = text.strip_prefix("file://")?;
    // What stands before the first stroke is a host. A file of another one has a path that means something else here.
    let at = rest.find('/')?;
    if !matches!(rest[..at].to_ascii_lowercase().as_str(), "" | "localhost") {
        return None;
    }
    let mut bytes = Vec::with_capacity(rest.len());
    let mut left = rest[at..].bytes();
    while let Some(b) = left.next() {
        match b {
            b'%' => {
                let pair: Vec<u8> = left.by_ref().take(2).collect();
                let digits = std::str::from_utf8(&pair).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            b'?' | b'#' => break,
            b => bytes.push(b),
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    // `/c:/x` is `c:/x` where there are drives.
    let drive = text.len() > 2 && text.as_bytes()[2] == b':' && std::path::MAIN_SEPARATOR == '\\';
    Some(clean(Path::new(if drive { &text[1..] } else { &text })))
}

/// Without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    crate::source::walk::absolute(path, Path::new("/"))
}

/// The address of a path.
pub fn of(path: &Path) -> Option<Uri> {
    let text = path.to_string_lossy().replace('\\', "/");
    let mut out = String::from(if text.starts_with('/') { "file://" } else { "file:///" });
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    Uri::from_str(&out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["/a/b.py", "/a b/ü#1.py", "/a/%41.py", "/x:y/z?.py"] {
            let uri = of(Path::new(text)).expect("an address");
            assert_eq!(path(&uri), Some(PathBuf::from(text)), "{}", uri.as_str());
        }
        let odd = Uri::from_str("untitled:Untitled-1").expect("an address");
        assert_eq!(path(&odd), None);
        let elsewhere = Uri::from_str("file://deep/three.py").expect("an address");
        assert_eq!(path(&elsewhere), None);
        let here = Uri::from_str("file://LocalHost/a.py").expect("an address");
        assert_eq!(path(&here), Some(PathBuf::from("/a.py")));
        assert_eq!(
            path(&Uri::from_str("file:///a%2Fb/c%20d.py").expect("an address")),
            Some(PathBuf::from("/a/b/c d.py"))
        );
    }
}
