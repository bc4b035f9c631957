//! Bytes of a Python file to text. In: bytes. Out: text without a byte order mark, or why it cannot be read and where.
//! Never: guessing an encoding; only a declared one is honoured. Next: `depth.rs`.

/// Why a file could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// A lowercase sentence fragment.
    pub message: String,
    /// Byte offset of the first byte that is wrong.
    pub offset: usize,
}

enum Encoding {
    Utf8,
    Latin1,
    Ascii,
    /// One of the tables of the Encoding Standard, all of them supersets of ASCII.
    Table(&'static encoding_rs::Encoding),
    Unknown,
}

/// Decodes as Python does (PEP 263): UTF-8 unless a coding comment in the first two lines says otherwise.
pub fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(DecodeError { message: "the file is UTF-16, Python source must be UTF-8".to_string(), offset: 0 });
    }
    let (body, skipped) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => (rest, 3),
        None => (bytes, 0),
    };
    let Some((name, at)) = declared(body) else { return utf8(body, skipped) };
    match encoding(&name) {
        Encoding::Utf8 => utf8(body, skipped),
        _ if skipped > 0 => {
            let message = format!("the file starts with a UTF-8 byte order mark but declares the encoding `{name}`");
            Err(DecodeError { message, offset: at + skipped })
        }
        Encoding::Latin1 => Ok(body.iter().map(|&b| char::from(b)).collect()),
        Encoding::Ascii | Encoding::Table(_) if body.is_ascii() => utf8(body, skipped),
        Encoding::Ascii => {
            let offset = body.iter().position(|b| !b.is_ascii()).unwrap_or(0);
            let message = format!("byte 0x{:02x} is not ASCII, which the file declares as its encoding", body[offset]);
            Err(DecodeError { message, offset: offset + skipped })
        }
        Encoding::Table(table) => match table.decode_without_bom_handling_and_without_replacement(body) {
            Some(text) => Ok(text.into_owned()),
            None => {
                let message = format!("the bytes are not text in `{name}`, which the file declares as its encoding");
                Err(DecodeError { message, offset: at })
            }
        },
        Encoding::Unknown => {
            let message = format!("the encoding `{name}` is not supported; use UTF-8");
            Err(DecodeError { message, offset: at + skipped })
        }
    }
}

/// The same, of bytes that nobody needs any more: those of most files are the text already.
pub fn decode_owned(bytes: Vec<u8>) -> Result<String, DecodeError> {
    let marked = [&[0xff, 0xfe][..], &[0xfe, 0xff], b"\xef\xbb\xbf"].iter().any(|mark| bytes.starts_with(mark));
    if marked || declared(&bytes).is_some() {
        return decode(&bytes);
    }
    String::from_utf8(bytes).or_else(|error| decode(error.as_bytes()))
}

fn utf8(body: &[u8], skipped: usize) -> Result<String, DecodeError> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let offset = error.valid_up_to();
            let message = format!("byte 0x{:02x} is not valid UTF-8, and no other encoding is declared", body[offset]);
            Err(DecodeError { message, offset: offset + skipped })
        }
    }
}

/// The encoding named by a coding comment in the first two lines, and where its name stands.
fn declared(body: &[u8]) -> Option<(String, usize)> {
    let mut start = 0;
    for _ in 0..2 {
        let end = body[start..].iter().position(|&b| b == b'\n' || b == b'\r').map_or(body.len(), |i| start + i);
        let line = &body[start..end];
        let indent = line.iter().position(|b| !matches!(b, b' ' | b'\t' | 0x0c)).unwrap_or(line.len());
        match line.get(indent) {
            None => {}
            Some(b'#') => {
                if let Some((name, at)) = coding_name(&line[indent..]) {
                    return Some((name, start + indent + at));
                }
            }
            // A first line with code on it ends the search.
            Some(_) => return None,
        }
        let crlf = body.get(end) == Some(&b'\r') && body.get(end + 1) == Some(&b'\n');
        start = (end + 1 + usize::from(crlf)).min(body.len());
    }
    None
}

/// `coding[:=]\s*([-\w.]+)` in a comment.
fn coding_name(comment: &[u8]) -> Option<(String, usize)> {
    let word = b"coding";
    let mut from = 0;
    while let Some(found) = comment[from..].windows(word.len()).position(|w| w == word) {
        let after = from + found + word.len();
        from = after;
        if !matches!(comment.get(after), Some(b':' | b'=')) {
            continue;
        }
        let mut start = after + 1;
        while matches!(comment.get(start), Some(b' ' | b'\t')) {
            start += 1;
        }
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let len = comment[start..].iter().take_while(|b| is_name(b)).count();
        if len > 0 {
            let name = comment[start..start + len].iter().map(|&b| char::from(b)).collect();
            return Some((name, start));
        }
    }
    None
}

fn encoding(name: &str) -> Encoding {
    let name = name.to_ascii_lowercase().replace('_', "-");
    // Editors append the line ending to the name: `utf-8-unix`.
    let name = name.trim_end_matches("-unix").trim_end_matches("-dos").trim_end_matches("-mac");
    match name {
        "utf-8" | "utf8" | "u8" | "utf" | "utf-8-sig" | "cp65001" => Encoding::Utf8,
        // Python takes whatever follows for a variant: `_*_coding:utf-8_*_`.
        _ if name.starts_with("utf-8-") => Encoding::Utf8,
        "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" | "iso-latin-1" | "8859" | "cp819" | "l1" | "latin" => {
            Encoding::Latin1
        }
        "ascii" | "us-ascii" | "646" | "ansi-x3.4-1968" => Encoding::Ascii,
        _ => of_table(name),
    }
}

/// The table of a name that Python knows; the standard has other names for some.
fn of_table(name: &str) -> Encoding {
    let label = match name {
        "cp936" | "ms936" | "euc-cn" | "euccn" | "gb2312-1980" | "gb18030-2000" => "gb18030",
        "cp932" | "ms932" | "mskanji" | "s-jis" => "shift_jis",
        "cp949" | "ms949" | "uhc" => "euc-kr",
        "cp950" | "ms950" | "big5-tw" => "big5",
        "eucjp" | "ujis" => "euc-jp",
        "euckr" | "korean" => "euc-kr",
        other => other,
    };
    // What is no superset of ASCII cannot have been read so far.
    match encoding_rs::Encoding::for_label_no_replacement(label.as_bytes()) {
        Some(table) if table.is_ascii_compatible() => Encoding::Table(table),
        _ => Encoding::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn plain_and_marked_utf8() {
        assert_eq!(decode(b"x = 1").as_deref(), Ok("x = 1"));
        assert_eq!(decode(b"\xef\xbb\xbfx = 1").as_deref(), Ok("x = 1"));
        assert_eq!(decode("é".as_bytes()).as_deref(), Ok("é"));
        assert_eq!(decode(b"").as_deref(), Ok(""));
    }

    #[test]
    fn bad_bytes_have_an_offset() {
        assert_eq!(decode(b"ab\xff").expect_err("not UTF-8").offset, 2);
        assert_eq!(decode(b"\xef\xbb\xbfab\xff").expect_err("not UTF-8").offset, 5);
        assert_eq!(decode(b"\xff\xfea\0").expect_err("UTF-16").offset, 0);
    }

    #[test]
    fn coding_lines() {
        assert_eq!(decode(b"# -*- coding: latin-1 -*-\n\xe9").as_deref(), Ok("# -*- coding: latin-1 -*-\n\u{e9}"));
        assert!(decode(b"#!/bin/sh\r\n# vim: set fileencoding=ISO_8859_1 :\n\xe9").is_ok());
        assert!(decode(b"\n\n# coding: latin-1\n\xe9").is_err(), "third line");
        assert!(decode(b"x = 1\n# coding: latin-1\n\xe9").is_err(), "code on the first line");
        assert_eq!(decode(b"# coding: ascii\n\xe9").expect_err("not ASCII").offset, 16);
        assert!(decode(b"# coding: cp1252\nx").is_ok());
        assert_eq!(decode(b"# coding: cp1252\n\xe9").as_deref(), Ok("# coding: cp1252\n\u{e9}"));
        assert_eq!(decode(b"# coding: gbk\n\xd6\xd0").as_deref(), Ok("# coding: gbk\n\u{4e2d}"));
        assert_eq!(
            decode(b"# coding: cp932\n\x83\x5c").as_deref(),
            Ok("# coding: cp932\n\u{30bd}"),
            "a backslash byte"
        );
        assert!(decode(b"# coding: gbk\n\xd6").expect_err("half a character").message.contains("gbk"));
        assert!(decode(b"# coding: rot13\n\xe9").expect_err("no table").message.contains("rot13"));
        assert!(decode(b"# coding: utf-8-unix\n").is_ok());
        assert!(decode(b"#_*_coding:utf-8_*_\n").is_ok());
    }
}
