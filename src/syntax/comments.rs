//! Finds `# spmd:` comments and the logical line each of them is about.
//!
//! In: text and tokens. Out: directives, suppressions, and annotations placed on lines. Never: looking into strings;
//! tokens tell comments from text. Next: `clauses.rs` (what they say), `attach.rs` (what they are about).

use super::attach::{Claims, Placed, Position};
use super::clauses::parse_part;
use super::{ProblemKind, SyntaxProblem, suppressions};
use crate::ir::annotation::{Annotation, Clause, ClauseKind, Suppression};
use crate::source::Span;
use ruff_python_ast::token::{TokenKind, Tokens};
use ruff_text_size::Ranged;

/// All comments of a file.
#[derive(Default)]
pub(super) struct Comments {
    pub claims: Claims,
    pub directives: Vec<Annotation>,
    pub suppressions: Vec<Suppression>,
    pub problems: Vec<SyntaxProblem>,
}

/// Comments of other tools end a part, whatever it says.
const OTHER_TOOLS: [&str; 11] =
    ["spmd:", "noqa", "type:", "pylint:", "pyright:", "mypy:", "ruff:", "fmt:", "isort:", "nosec", "pragma:"];

pub(super) fn collect(text: &str, tokens: &Tokens) -> Comments {
    // Most files have none, and finding that out costs one search.
    if !text.contains("spmd") {
        return Comments::default();
    }
    let mut found = Collector { text, lines: Vec::new(), comments: Vec::new() };
    found.scan(tokens);
    if found.comments.is_empty() {
        return Comments::default();
    }
    found.place()
}

/// A comment token, and the logical line it stands in, if it does.
struct Comment {
    span: Span,
    /// Index of the logical line; of the next one for a comment on its own.
    line: usize,
    own_line: bool,
}

struct Collector<'a> {
    text: &'a str,
    /// Logical lines, without their line endings.
    lines: Vec<Span>,
    comments: Vec<Comment>,
}

impl Collector<'_> {
    fn scan(&mut self, tokens: &Tokens) {
        let mut start = None;
        let mut end = 0;
        for token in tokens {
            let range = token.range();
            let span = Span::new(range.start().to_u32(), range.end().to_u32());
            match token.kind() {
                TokenKind::Comment => {
                    let text = &self.text[span.start as usize..span.end as usize];
                    if text.contains("spmd:") || almost(text).is_some() {
                        self.comments.push(Comment { span, line: self.lines.len(), own_line: start.is_none() });
                    }
                }
                TokenKind::Newline => {
                    if let Some(start) = start.take() {
                        self.lines.push(Span::new(start, end.max(start)));
                    }
                }
                TokenKind::NonLogicalNewline | TokenKind::Indent | TokenKind::Dedent | TokenKind::EndOfFile => {}
                _ => {
                    start.get_or_insert(span.start);
                    end = span.end;
                }
            }
        }
        if let Some(start) = start {
            self.lines.push(Span::new(start, end.max(start)));
        }
    }

    fn place(self) -> Comments {
        let mut out = Comments::default();
        let mut placed = Vec::new();
        for comment in &self.comments {
            let text = &self.text[comment.span.start as usize..comment.span.end as usize];
            let (position, line) = self.position(comment);
            if let Some(length) = almost(text) {
                let span = Span::new(comment.span.start, comment.span.start + length as u32);
                let detail = "a comment is read if it begins with `# spmd:`, and this one is not".to_string();
                out.problems.push(SyntaxProblem::new(ProblemKind::BadAnnotation, span, detail));
            }
            for start in part_starts(text) {
                let base = comment.span.start + start as u32;
                let part = &text[start..];
                let end = part_end(part, false);
                let parsed = parse_part(&part[..end], base);
                let bad = |(span, detail)| SyntaxProblem::new(ProblemKind::BadAnnotation, span, detail);
                out.problems.extend(parsed.problems.into_iter().map(bad));
                if let Some(at) = parsed.suppression {
                    let rest = &text[(at - comment.span.start) as usize..];
                    let rest = &rest[..part_end(rest, true)];
                    match suppressions::parse(rest, at, self.suppressed(comment)) {
                        Ok(suppression) => out.suppressions.push(suppression),
                        Err(problem) => out.problems.push(problem),
                    }
                }
                let blank = (end - part[..end].trim_start().len()) as u32;
                let whole = Span::new(base + blank, base + (part[..end].trim_end().len() as u32).max(blank));
                let (directives, clauses): (Vec<_>, Vec<_>) = parsed.clauses.into_iter().partition(is_directive);
                if !directives.is_empty() {
                    out.directives.push(Annotation { span: whole, clauses: directives });
                }
                if !clauses.is_empty() {
                    placed.push(Placed {
                        annotation: Annotation { span: whole, clauses },
                        position,
                        line: line.map(|l| l.start),
                        physical: self.physical_line(comment.span),
                        found: None,
                        signature_of: None,
                        targets: Vec::new(),
                        before: None,
                    });
                }
            }
        }
        out.claims = Claims::new(placed);
        out
    }

    /// Which logical line a comment is about.
    fn position(&self, comment: &Comment) -> (Position, Option<Span>) {
        if !comment.own_line {
            return (Position::Trailing, self.lines.get(comment.line).copied());
        }
        let column = self.column(comment.span.start);
        if let Some(&next) = self.lines.get(comment.line)
            && self.column(next.start) >= column
            && !self.continues_statement(next)
        {
            return (Position::Above, Some(next));
        }
        // The last thing in its block.
        let before = self.lines[..comment.line.min(self.lines.len())].iter().rev();
        let previous =
            before.copied().find(|line| self.column(line.start) <= column && !self.continues_statement(*line));
        (Position::After, previous)
    }

    /// `else`, `elif`, `except`, `finally`, `case`: not the start of a statement. (`case` may be a variable.)
    fn continues_statement(&self, line: Span) -> bool {
        let text = &self.text[line.start as usize..line.end as usize];
        let word = &text[..text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())];
        matches!(word, "else" | "elif" | "except" | "finally")
    }

    fn column(&self, offset: u32) -> u32 {
        offset - self.physical_start(offset)
    }

    fn physical_start(&self, offset: u32) -> u32 {
        self.text.as_bytes()[..offset as usize]
            .iter()
            .rposition(|b| matches!(b, b'\n' | b'\r'))
            .map_or(0, |i| i as u32 + 1)
    }

    fn physical_line(&self, comment: Span) -> Span {
        Span::new(self.physical_start(comment.start), comment.end)
    }

    /// The logical line that `ignore` is about. Above a decorator it reaches to the line of the `def`.
    fn suppressed(&self, comment: &Comment) -> Span {
        let Some(&line) = self.lines.get(comment.line) else { return comment.span };
        if !comment.own_line {
            return line;
        }
        let decorator = |line: &&Span| self.text[line.start as usize..].starts_with('@');
        let decorators = self.lines[comment.line..].iter().take_while(decorator).count();
        self.lines.get(comment.line + decorators).map_or(line, |&last| line.cover(last))
    }
}

/// Offsets just after each `# spmd:` of a comment.
fn part_starts(comment: &str) -> Vec<usize> {
    let mut starts = Vec::new();
    for (at, _) in comment.match_indices('#') {
        let rest = comment[at + 1..].trim_start_matches([' ', '\t']);
        if rest.starts_with("spmd:") {
            starts.push(comment.len() - rest.len() + "spmd:".len());
        }
    }
    starts
}

/// How long the beginning of a comment is that misspells `# spmd:` in front of what would be an annotation.
fn almost(comment: &str) -> Option<usize> {
    let body = comment.strip_prefix('#')?.trim_start();
    let word = &body[..body.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(body.len())];
    let lower = word.to_ascii_lowercase();
    let mut letters = lower.clone().into_bytes();
    letters.sort_unstable();
    let rest = &body[word.len()..];
    let text = rest.trim_start().strip_prefix(':');
    if letters != b"dmps" || word == "spmd" && rest.starts_with(':') || lower != "spmd" && text.is_none() {
        return None;
    }
    let said = text.unwrap_or(rest);
    let parsed = parse_part(&said[..part_end(said, false)], 0);
    let bare = |c: &Clause| matches!(c.kind, ClauseKind::Bare(_));
    // Prose may happen to be a type, as `I` is.
    let says = parsed.suppression.is_some() || parsed.clauses.iter().any(|c| text.is_some() || !bare(c));
    (says && parsed.problems.is_empty()).then_some(comment.len() - said.len())
}

/// Where a part ends: at the comment of another tool, or, unless a reason is being read, at any `#` outside quotes.
fn part_end(part: &str, in_reason: bool) -> usize {
    let mut quote = None;
    for (at, c) in part.char_indices() {
        match (c, quote) {
            ('#', _) if OTHER_TOOLS.iter().any(|tool| part[at + 1..].trim_start().starts_with(tool)) => return at,
            ('#', None) if !in_reason => return at,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    part.len()
}

fn is_directive(clause: &Clause) -> bool {
    match clause.kind {
        ClauseKind::Mesh { .. }
        | ClauseKind::Alias { .. }
        | ClauseKind::Group { .. }
        | ClauseKind::Flag(_)
        | ClauseKind::Assume(_)
        | ClauseKind::Mode(_)
        | ClauseKind::Extern { .. } => true,
        ClauseKind::Signature { .. }
        | ClauseKind::Named(_)
        | ClauseKind::Bare(_)
        | ClauseKind::Trust(_)
        | ClauseKind::Param { .. } => false,
    }
}
