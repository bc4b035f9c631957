//! Python text around a place, as far as an edit needs it. In: the text of a file and offsets. Out: lines, arguments, import statements.
//! Never: an edit that was not asked for; whether an edit is right is found by checking the result. Next: `flow.rs`, `practice.rs`.

use crate::source::{Edit, File, FileId, Place, Span};

/// An edit of a byte range.
pub fn edit(file: FileId, start: usize, end: usize, text: impl Into<String>) -> Edit {
    let span = Span::new(u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX));
    Edit { place: Place { file, span }, text: text.into() }
}

/// The range of the line that holds an offset, without its line ending.
pub fn line_range(text: &str, at: usize) -> (usize, usize) {
    let head = text.get(..at).unwrap_or(text);
    let start = head.rfind(['\n', '\r']).map_or(0, |i| i + 1);
    let end = text.get(at..).and_then(|rest| rest.find(['\n', '\r'])).map_or(text.len(), |i| at + i);
    (start, end)
}

/// The line ending that a file uses.
pub fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The blanks that a line starts with.
pub fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Whether a text is a name and nothing else.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Whether a text is a name with attributes: `x`, `self.x`.
pub fn is_dotted(text: &str) -> bool {
    text.split('.').all(is_name)
}

/// Whether a name occurs in a text as a whole word.
pub fn has_word(text: &str, word: &str) -> bool {
    words_at(text, word).next().is_some()
}

/// The offsets at which a word occurs.
pub fn words_at<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(part) && !text[*at + word.len()..].starts_with(part))
}

/// What scanning Python text passes: code, with its depth of brackets, or the inside of a string or comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Code(usize),
    Quoted,
}

/// Each character with its offset and what it is part of; strings, also triple ones, and comments count as quoted.
pub fn scan(text: &str) -> Vec<(usize, char, Part)> {
    let mut out = Vec::with_capacity(text.len());
    let mut depth = 0usize;
    let mut quote: Option<&str> = None;
    let mut skip_to = 0;
    let mut comment = false;
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        if at < skip_to {
            out.push((at, c, Part::Quoted));
            continue;
        }
        if comment {
            comment = c != '\n';
        } else if let Some(mark) = quote {
            if c == '\\' {
                skip_to = at + 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            } else if rest.starts_with(mark) {
                skip_to = at + mark.len();
                quote = None;
            } else if mark.len() == 1 && c == '\n' {
                quote = None;
            }
            out.push((at, c, Part::Quoted));
            continue;
        } else if c == '#' {
            comment = true;
        } else if let Some(mark) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|m| rest.starts_with(m)) {
            quote = Some(mark);
            skip_to = at + mark.len();
            out.push((at, c, Part::Quoted));
            continue;
        } else if matches!(c, ')' | ']' | '}') {
            depth = depth.saturating_sub(1);
        }
        out.push((at, c, if comment { Part::Quoted } else { Part::Code(depth) }));
        if !comment && matches!(c, '(' | '[' | '{') {
            depth += 1;
        }
    }
    out
}

/// Where the brackets that open at the start of a text close again, from its start.
pub fn closing(text: &str) -> Option<usize> {
    scan(text)
        .into_iter()
        .skip(1)
        .find(|(_, c, part)| *part == Part::Code(0) && matches!(c, ')' | ']' | '}'))
        .map(|t| t.0)
}

/// The range of the code that a text starts with up to a comma or a closing bracket of the outside.
pub fn leading_expression(text: &str) -> &str {
    let mut depth = 0usize;
    for (at, c, part) in scan(text) {
        let Part::Code(_) = part else { continue };
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return text[..at].trim_end(),
            ')' | ']' | '}' => depth -= 1,
            ',' | '\n' if depth == 0 => return text[..at].trim_end(),
            _ => {}
        }
    }
    text.trim_end()
}

/// A call in source text.
pub struct CallText<'t> {
    /// What is called.
    pub callee: &'t str,
    /// Each argument, with its offset in the text of the call.
    pub arguments: Vec<(usize, &'t str)>,
    /// The offset of the closing bracket.
    pub close: usize,
}

/// A text that is one call.
pub fn call(text: &str) -> Option<CallText<'_>> {
    let open = text.find('(')?;
    let callee = text[..open].trim_end();
    let close = open + closing(&text[open..])?;
    if !is_dotted(callee) || !text[close + 1..].trim().is_empty() {
        return None;
    }
    let inside = &text[open + 1..close];
    let mut arguments = Vec::new();
    let mut start = 0;
    let commas = scan(inside).into_iter().filter(|(_, c, part)| *c == ',' && *part == Part::Code(0)).map(|t| t.0);
    for end in commas.chain([inside.len()]) {
        let piece = &inside[start..end];
        // A comment is no part of an argument.
        let code: Vec<usize> = scan(piece)
            .into_iter()
            .filter(|(at, c, part)| matches!(part, Part::Code(_)) && !c.is_whitespace() || is_string(piece, *at, *part))
            .map(|t| t.0)
            .collect();
        if let (Some(first), Some(last)) = (code.first(), code.last()) {
            let until = last + piece[*last..].chars().next().map_or(0, char::len_utf8);
            arguments.push((open + 1 + start + first, &piece[*first..until]));
        }
        start = end + 1;
    }
    Some(CallText { callee, arguments, close })
}

/// Whether a quoted character belongs to a string and not to a comment.
fn is_string(text: &str, at: usize, part: Part) -> bool {
    let line = text[..at].rfind('\n').map_or(0, |i| i + 1);
    part == Part::Quoted && !text[line..at].contains('#') && !text[at..].starts_with('#')
}

/// The text of the function around an offset, from its `def` to the line of the offset, and where it starts.
pub fn function_before(text: &str, at: usize) -> (usize, &str) {
    let (line, _) = line_range(text, at);
    let width = |line: &str| indent_of(line).len();
    let mut own = width(&text[line..]);
    let mut end = line;
    while end > 0 {
        let (start, stop) = line_range(text, end - 1);
        let current = &text[start..stop];
        let head = current.trim_start();
        if !head.is_empty() && width(current) < own {
            own = width(current);
            if head.starts_with("def ") || head.starts_with("async def ") {
                return (start, &text[start..at]);
            }
        }
        end = start;
    }
    (0, &text[..at.min(text.len())])
}

/// The statement of one line that a place is all of: `start..end` of the line, and the name that it assigns, if it does.
pub fn whole_line(file: &File, place: Place) -> Option<(usize, usize, Option<&str>)> {
    let (start, end) = (place.span.start as usize, place.span.end as usize);
    let text = &file.text;
    let (from, _) = line_range(text, start);
    let (_, to) = line_range(text, end);
    let after = text.get(end..to)?.trim();
    if !after.is_empty() && !after.starts_with('#') {
        return None;
    }
    let before = text.get(from..start)?.trim();
    if before.is_empty() {
        return Some((from, to, None));
    }
    let name = before.strip_suffix('=')?.trim_end();
    is_dotted(name).then_some((from, to, Some(name)))
}

/// Deletes whole lines with their line ending.
pub fn delete_lines(file: FileId, text: &str, from: usize, to: usize) -> Edit {
    let rest = &text[to..];
    let ending = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with(['\n', '\r'])) };
    edit(file, from, to + ending, "")
}

/// Adds a name to the statement that imports from a module; nothing if no statement does.
pub fn import(file: FileId, text: &str, module: &str, name: &str) -> Option<Edit> {
    let mut at = 0;
    while let Some(found) = text[at..].find("from ") {
        let start = at + found;
        at = start + 5;
        let (line, _) = line_range(text, start);
        if !text[line..start].trim().is_empty() {
            continue;
        }
        let Some(rest) = text[at..].trim_start().strip_prefix(module) else { continue };
        let Some(names) = rest.strip_prefix(" import ").or_else(|| rest.strip_prefix(" import(")) else { continue };
        let first = text.len() - names.len();
        if names.trim_start().starts_with('(') || rest.starts_with(" import(") {
            let open = first - usize::from(rest.starts_with(" import("))
                + text[first..].find('(').filter(|_| !rest.starts_with(" import(")).unwrap_or(0);
            return into_brackets(file, text, open, name);
        }
        let (_, end) = line_range(text, first);
        let code = text[first..end].split('#').next().unwrap_or("").trim_end();
        if code.ends_with('\\') || code.contains('*') {
            continue;
        }
        return Some(edit(file, first + code.len(), first + code.len(), format!(", {name}")));
    }
    None
}

/// Adds a name to a list of imports in brackets, in order if the list is in order.
fn into_brackets(file: FileId, text: &str, open: usize, name: &str) -> Option<Edit> {
    let close = open + closing(&text[open..])?;
    let inside = &text[open + 1..close];
    if !inside.contains('\n') {
        let end = open + 1 + inside.trim_end().trim_end_matches(',').len();
        return Some(edit(file, end, end, format!(", {name}")));
    }
    let mut last = None;
    let mut at = open + 1;
    for line in inside.split_inclusive('\n') {
        let entry = line.trim().split([',', ' ', '#']).next().unwrap_or("");
        if is_name(entry) {
            if entry > name {
                return Some(edit(file, at, at, format!("{}{name},{}", indent_of(line), newline(text))));
            }
            last = Some((at, line));
        }
        at += line.len();
    }
    let (at, line) = last?;
    let code = line.split('#').next().unwrap_or(line).trim_end();
    let comma = if code.ends_with(',') { "" } else { "," };
    let end = at + code.len();
    let tail = format!("{comma}{}{}{name}", newline(text), indent_of(line));
    // After the comma that is there, and with one of its own.
    Some(match comma {
        "" => edit(file, end, end, format!("{tail},")),
        _ => edit(file, end, end, format!("{tail},")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Idx;

    fn applied(text: &str, change: &Edit) -> String {
        let (a, b) = (change.place.span.start as usize, change.place.span.end as usize);
        format!("{}{}{}", &text[..a], change.text, &text[b..])
    }

    #[test]
    fn names_join_the_import_of_their_module() {
        let file = FileId::from_index(0);
        let cases = [
            ("from m.n import a\nx = a\n", "from m.n import a, f\nx = a\n"),
            ("from m.n import a  # why\n", "from m.n import a, f  # why\n"),
            ("from m.n import (a, b)\n", "from m.n import (a, b, f)\n"),
            ("from m.n import (\n    a,\n    g,\n)\n", "from m.n import (\n    a,\n    f,\n    g,\n)\n"),
            ("from m.n import (\n    a,\n    b\n)\n", "from m.n import (\n    a,\n    b,\n    f,\n)\n"),
            ("if c:\n    from m.n import a\n", "if c:\n    from m.n import a, f\n"),
        ];
        for (text, wanted) in cases {
            let change = import(file, text, "m.n", "f").expect("the module is imported from");
            assert_eq!(applied(text, &change), wanted);
        }
        assert!(import(file, "from m.nothing import a\nimport m.n\n", "m.n", "f").is_none());
    }

    #[test]
    fn calls_fall_into_their_arguments() {
        let text = "f.g(a, b(1, 2), k=\"é, ü\",  # nö, comment\n  last  # BUG: x\n)";
        let found = call(text).expect("it is a call");
        assert_eq!(found.callee, "f.g");
        let shown: Vec<&str> = found.arguments.iter().map(|a| a.1).collect();
        assert_eq!(shown, ["a", "b(1, 2)", "k=\"é, ü\"", "last"]);
        assert!(call("f(x) + 1").is_none());
    }

    #[test]
    fn the_function_around_a_line() {
        let text = "def f():\n    if c:\n        x = 1\n\nclass A:\n    def g(self):\n        y = 2\n";
        let at = text.find("y = 2").unwrap_or(0);
        assert!(function_before(text, at).1.starts_with("    def g"));
    }
}
