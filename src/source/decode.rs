//! Bytes of a Python file to text, as Python itself decodes them. In: bytes. Out: text without a byte order mark, or why not.
//! Never: guessing an encoding that is not declared. Next: `files.rs`, which keeps the text.

/// Larger files are not source, and offsets have to fit 32 bits with room to spare.
const LARGEST: usize = 256 << 20;

/// Decodes a file: UTF-8 unless a coding comment in the first two lines says otherwise.
pub fn decode(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > LARGEST {
        return Err("it is larger than 256 MiB".to_owned());
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("it is UTF-16, which Python does not read".to_owned());
    }
    let body = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
    match String::from_utf8(body) {
        Ok(text) => Ok(text),
        Err(error) => {
            let bytes = error.as_bytes();
            match declared_encoding(bytes).as_deref() {
                Some("latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" | "l1" | "iso-8859-15" | "cp1252") => {
                    Ok(bytes.iter().map(|&byte| char::from(byte)).collect())
                }
                Some(other) if !matches!(other, "utf-8" | "utf8" | "ascii") => {
                    Err(format!("its declared encoding `{other}` is not supported"))
                }
                _ => {
                    let good = error.utf8_error().valid_up_to();
                    let line = 1 + bytes[..good].iter().filter(|&&byte| byte == b'\n').count();
                    Err(format!("it is not UTF-8 (line {line})"))
                }
            }
        }
    }
}

/// The encoding named by a comment such as `# -*- coding: latin-1 -*-` (PEP 263).
fn declared_encoding(bytes: &[u8]) -> Option<String> {
    for line in bytes.split(|&byte| byte == b'\n').take(2) {
        let line = String::from_utf8_lossy(line);
        let Some(comment) = line.trim_start().strip_prefix('#') else { continue };
        let Some((_, after)) = comment.split_once("coding") else { continue };
        let Some(value) = after.strip_prefix([':', '=']) else { continue };
        let value = value.trim_start_matches([' ', '\t']);
        let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(value.len());
        return Some(value[..end].to_ascii_lowercase().replace('_', "-"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn bytes_decode_as_python_decodes_them() {
        assert_eq!(decode(b"\xef\xbb\xbfx = 1\n".to_vec()).as_deref(), Ok("x = 1\n"));
        assert_eq!(
            decode(b"# -*- coding: latin-1 -*-\n# \xe9\n".to_vec()).as_deref(),
            Ok("# -*- coding: latin-1 -*-\n# é\n")
        );
        assert_eq!(decode(b"x = 1\n# \xe9\n".to_vec()), Err("it is not UTF-8 (line 2)".to_owned()));
        assert!(decode(b"\xff\xfex\0".to_vec()).is_err());
    }
}
