//! Tokens of the annotation grammar. In: the text after `# spmd:` and its offset in the file. Out: tokens with file
//! spans. Never: failing: a character that does not belong is a token too. Next: `annotation_parser.rs`.

use crate::source::Span;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tok<'a> {
    Name(&'a str),
    Int(i64),
    /// Contents without quotes; escapes are kept as written.
    Str(&'a str),
    /// One of `-> == !=` or a single character.
    Punct(&'a str),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub tok: Tok<'a>,
    pub span: Span,
}

/// Splits `text`, which starts at `base` in its file. The last token is [`Tok::End`].
pub(super) fn lex(text: &str, base: u32) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let start = text.len() - rest.len();
        let Some(first) = rest.chars().next() else { break };
        let (tok, len) = next(rest, first);
        tokens.push(Token { tok, span: span(base, start, start + len) });
        rest = &rest[len..];
    }
    let end = text.trim_end().len();
    tokens.push(Token { tok: Tok::End, span: span(base, end, end) });
    tokens
}

fn span(base: u32, start: usize, end: usize) -> Span {
    Span::new(base + start as u32, base + end as u32)
}

fn next(rest: &str, first: char) -> (Tok<'_>, usize) {
    let run = |f: fn(char) -> bool| rest.find(|c| !f(c)).unwrap_or(rest.len());
    if first.is_alphabetic() || first == '_' {
        let len = run(|c| c.is_alphanumeric() || c == '_');
        return (Tok::Name(&rest[..len]), len);
    }
    if first.is_ascii_digit() {
        let len = run(|c| c.is_ascii_digit());
        return (rest[..len].parse().map_or(Tok::Punct(&rest[..len]), Tok::Int), len);
    }
    if first == '"' || first == '\'' {
        return match rest[1..].find(first) {
            Some(len) => (Tok::Str(&rest[1..=len]), len + 2),
            None => (Tok::Punct(rest), rest.len()),
        };
    }
    let two = ["->", "==", "!="].iter().any(|p| rest.starts_with(p));
    let len = if two { 2 } else { first.len_utf8() };
    (Tok::Punct(&rest[..len]), len)
}
