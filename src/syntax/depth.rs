//! A look at the raw text before the parser sees it. In: text. Out: that it is too large, or where brackets or operators
//! nest too deep, if they do. Never: rejecting a file over what stands in strings or comments. Next: `parse.rs`.
//!
//! The parser grows its stack on the heap, about 2 kB a level, and dropping its tree recurses, about 65 bytes a level.
//! Both are bounded here. Ordinary files pay for one vectorized count of brackets.

use crate::source::Span;
use crate::source::disk::MAX_SOURCE_BYTES;

/// More open brackets than this are refused.
pub const MAX_BRACKETS: usize = 5_000;
/// Longer chains of operators, calls and keywords within one bracket are refused.
pub const MAX_CHAIN: u32 = 250_000;
/// Larger files are refused: the tree and the statements of one take some hundred times its size in memory. Hand-written modules
/// stay far below; what is larger is generated data.
pub const MAX_FILE_BYTES: usize = MAX_SOURCE_BYTES;
/// Below this length no chain can be too long.
const MAX_CHAIN_BYTES: usize = 250_000;
const BLOCK: usize = 1024;

/// Why a text is not parsed, and where.
pub struct TooDeep {
    pub span: Span,
    pub detail: String,
}

/// Finds the first place that is nested too deep.
pub fn check(text: &str) -> Option<TooDeep> {
    if text.len() > MAX_FILE_BYTES {
        let detail = format!("the file is larger than {} MiB; it is not checked", MAX_FILE_BYTES >> 20);
        return Some(TooDeep { span: Span::new(0, 0), detail });
    }
    if text.len() <= MAX_CHAIN_BYTES && !may_nest_too_deep(text.as_bytes()) {
        return None;
    }
    Scan { bytes: text.as_bytes(), at: 0, chains: vec![0] }.run()
}

/// An upper bound on bracket depth, block by block; brackets in strings count too, hence "may".
fn may_nest_too_deep(bytes: &[u8]) -> bool {
    let mut depth = 0usize;
    for block in bytes.chunks(BLOCK) {
        let (mut opens, mut closes) = (0u32, 0u32);
        for &b in block {
            opens += u32::from((b == b'(') | (b == b'[') | (b == b'{'));
            closes += u32::from((b == b')') | (b == b']') | (b == b'}'));
        }
        if depth + opens as usize > MAX_BRACKETS {
            return true;
        }
        depth = (depth + opens as usize).saturating_sub(closes as usize);
    }
    false
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Length of the chain at each open bracket, outermost first.
    chains: Vec<u32>,
}

impl Scan<'_> {
    fn run(mut self) -> Option<TooDeep> {
        let mut in_word = false;
        while let Some(&b) = self.bytes.get(self.at) {
            let was_word = std::mem::replace(&mut in_word, b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80);
            match b {
                b'#' => self.skip_comment(),
                b'"' | b'\'' => self.skip_string(b),
                b'(' | b'[' | b'{' => {
                    if self.lengthen() > MAX_CHAIN {
                        return Some(self.long_chain());
                    }
                    self.chains.push(0);
                    if self.chains.len() > MAX_BRACKETS {
                        return Some(self.too_deep(format!("brackets are nested more than {MAX_BRACKETS} deep")));
                    }
                }
                b')' | b']' | b'}' if self.chains.len() > 1 => {
                    self.chains.pop();
                }
                b',' | b';' => self.restart(),
                b'\n' | b'\r' if self.chains.len() == 1 => self.restart(),
                // A continued line.
                b'\\' => self.at += 1,
                b if b.is_ascii_whitespace() => {}
                _ if in_word && was_word => {}
                _ if self.lengthen() > MAX_CHAIN => return Some(self.long_chain()),
                _ => {}
            }
            self.at += 1;
        }
        None
    }

    fn restart(&mut self) {
        if let Some(top) = self.chains.last_mut() {
            *top = 0;
        }
    }

    /// Counts one more operator, operand or bracket in the innermost bracket.
    fn lengthen(&mut self) -> u32 {
        match self.chains.last_mut() {
            Some(top) => {
                *top = top.saturating_add(1);
                *top
            }
            None => 0,
        }
    }

    fn long_chain(&self) -> TooDeep {
        self.too_deep(format!("an expression has more than {MAX_CHAIN} operators and operands"))
    }

    fn too_deep(&self, detail: String) -> TooDeep {
        let at = self.at as u32;
        TooDeep { span: Span::new(at, at + 1), detail }
    }

    /// Leaves `at` on the last byte of the comment.
    fn skip_comment(&mut self) {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&b| b == b'\n' || b == b'\r').unwrap_or(rest.len());
        self.at += len.max(1) - 1;
    }

    /// Leaves `at` on the closing quote, or on the end of the line of an unclosed string.
    fn skip_string(&mut self, quote: u8) {
        let triple = self.bytes[self.at..].starts_with(&[quote; 3]);
        self.at += if triple { 3 } else { 1 };
        while let Some(&b) = self.bytes.get(self.at) {
            match b {
                b'\\' => self.at += 1,
                b'\n' | b'\r' if !triple => return,
                b if b == quote && !triple => return,
                b if b == quote && self.bytes[self.at..].starts_with(&[quote; 3]) => {
                    self.at += 2;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BRACKETS, check};

    #[test]
    fn ordinary_nesting_passes() {
        assert!(check("f(g([1, {2: (3)}]))").is_none());
        assert!(check(&"(".repeat(MAX_BRACKETS - 1)).is_none());
    }

    #[test]
    fn deep_nesting_is_refused() {
        let found = check(&"(".repeat(MAX_BRACKETS + 10)).expect("too deep");
        assert!(found.detail.contains("nested"));
        assert!(check(&"[".repeat(100_000)).is_some());
        assert!(check(&format!("x = {}1", "-".repeat(400_000))).is_some());
    }

    #[test]
    fn strings_and_comments_do_not_count() {
        let many = "(".repeat(MAX_BRACKETS * 2);
        assert!(check(&format!("x = '{many}'\n# {many}\ny = \"\"\"{many}\n{many}\"\"\"\n")).is_none());
        assert!(check(&format!("x = [{}]", "1, ".repeat(400_000))).is_none());
        assert!(check(&"x = 1\n".repeat(100_000)).is_none());
    }
}
