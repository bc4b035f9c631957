//! Lines on which more whitespace changes nothing: blank ones before a definition. In: text. Out: where their line endings start.
//! Never: a line inside a string or a bracket. Next: `check/layout.rs`, which keeps definitions where they were.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a definition begins.
const HEADS: [&str; 4] = ["def ", "async def ", "class ", "@"];

/// The ends of blank lines before definitions, ascending.
pub fn gaps(text: &str) -> Vec<u32> {
    if u32::try_from(text.len()).is_err() || super::depth::check(text).is_some() {
        return Vec::new();
    }
    catch_unwind(AssertUnwindSafe(|| of_tokens(text))).unwrap_or_default()
}

fn of_tokens(text: &str) -> Vec<u32> {
    let tree = parse_unchecked(text, ParseOptions::from(Mode::Module));
    let (mut out, mut depth) = (Vec::new(), 0i32);
    for token in tree.tokens() {
        match token.kind() {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => depth += 1,
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => depth -= 1,
            TokenKind::NonLogicalNewline if depth == 0 => {
                let (start, end) = (token.range().start().to_usize(), token.range().end().to_usize());
                let line = text[..start].rfind(['\n', '\r']).map_or(0, |at| at + 1);
                let blank = text[line..start].bytes().all(|b| b == b' ' || b == b'\t');
                let next = text[end..].trim_start_matches([' ', '\t']);
                if blank && line > 0 && HEADS.iter().any(|head| next.starts_with(head)) {
                    out.push(token.range().start().to_u32());
                }
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_blank_lines_before_definitions() {
        let text = "import a\n\n\ndef f():\n    x = '''\n\ndef g(): ...\n'''\n\n    y = (1\n\n@ 2)\n\n    @d\n    def h(): ...\n";
        let found: Vec<u32> = super::gaps(text);
        let lines: Vec<usize> = found.iter().map(|at| text[..*at as usize].matches('\n').count() + 1).collect();
        assert_eq!(lines, [3, 13]);
    }
}
