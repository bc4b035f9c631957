//! The types in one file, ready to be looked up. In: what a session says of the file. Out: the type at an offset, of a variable, of a
//! function. Never: words. Next: `hover.rs`.

use crate::check::session::Session;
use crate::diagnostics::signature::{SignatureLine, signatures};
use crate::infer::output::{DerivedRow, Exit};
use crate::infer::{Output, Row};
use crate::ir::{Func, FuncKind};
use crate::project::{FuncRef, ModuleId};
use crate::source::{FileId, Idx, Name, Span};
use std::sync::Arc;

/// All types of a file.
pub struct FileTypes {
    module: Option<ModuleId>,
    /// Of variables and, without a name, of expressions; by place.
    pub rows: Vec<Row>,
    pub exits: Vec<Exit>,
    pub derived: Vec<Arc<DerivedRow>>,
    pub signatures: Vec<SignatureLine>,
}

/// Whether something is known on some axis.
pub fn is_known(row: &Row) -> bool {
    row.ty.local.listed().any(|(_, s)| !s.set.is_unknown() && !s.set.is_empty()) || row.ty.local.rest.set.is_known()
}

impl FileTypes {
    pub fn new(session: &Session, file: FileId, found: Output) -> FileTypes {
        let mut rows: Vec<Row> = found.rows.into_iter().filter(|r| r.place.file == file && is_known(r)).collect();
        rows.sort_by(|a, b| (a.place, &a.variable).cmp(&(b.place, &b.variable)));
        let all = signatures(session.project(), session.rules(), session.files(), &found.exits);
        let path = &session.files()[file].path;
        let signatures = all.into_iter().filter(|line| line.path == *path).collect();
        FileTypes { module: session.module_of(file), rows, exits: found.exits, derived: found.derived, signatures }
    }

    /// The innermost function around an offset.
    pub fn func_at<'a>(&self, session: &'a Session, offset: u32) -> Option<(FuncRef, &'a Func)> {
        let module = self.module?;
        let ir = &session.project().modules[module].ir;
        let around = ir
            .funcs
            .iter_enumerated()
            .filter(|(_, f)| f.kind == FuncKind::Module || f.span.start <= offset && offset <= f.span.end);
        let (func, f) = around.min_by_key(|(id, f)| (f.kind == FuncKind::Module, f.span.len(), id.index()))?;
        Some((FuncRef { module, func }, f))
    }

    /// What is known at an offset: of the variable that is named there, else of the smallest expression around.
    pub fn at(&self, session: &Session, offset: u32, named: Option<&Named<'_>>) -> Option<&Row> {
        let (at, func) = self.func_at(session, offset)?;
        let of_name = named.and_then(|named| self.of_name(at, func, named));
        of_name.or_else(|| self.step(offset, named.map(|n| n.span)))
    }

    /// The smallest expression around an offset that covers all of a name.
    fn step(&self, offset: u32, name: Option<Span>) -> Option<&Row> {
        let covers = |span: Span| {
            let inside = span.start <= offset && offset <= span.end;
            inside && name.is_none_or(|name| span.start <= name.start && name.end <= span.end)
        };
        self.rows.iter().filter(|row| covers(row.place.span)).min_by_key(|row| row.place.span.len())
    }

    /// The type that a variable has where it is named: the last one noted up to there, else the first after it.
    fn of_name(&self, at: FuncRef, func: &Func, named: &Named<'_>) -> Option<&Row> {
        let local = func.locals().iter().any(|l| l.name == named.text) || named.text.contains('.');
        let rows = || self.rows.iter().filter(|row| row.func == at && row.variable == named.text);
        if !local {
            return None;
        }
        let line_end = named.line_end;
        let mut before = rows().filter(|row| row.place.span.start < line_end);
        let assigned = named.is_target;
        match assigned {
            true => rows().find(|row| row.place.span.end >= named.span.start).or_else(|| before.next_back()),
            false => before.rfind_before(named.span.start).or_else(|| rows().next()),
        }
    }

    /// The signature of a function, in words.
    pub fn signature(&self, name: &Name, line: u32) -> Vec<&str> {
        let own = self.signatures.iter().filter(|s| s.line == line && s.function == *name);
        own.map(|s| s.text.as_str()).collect()
    }
}

/// A name in the text.
pub struct Named<'a> {
    /// `x`, `self.weight`
    pub text: &'a str,
    pub span: Span,
    pub line_end: u32,
    /// Whether it is assigned there.
    pub is_target: bool,
}

/// The last row that starts before an offset.
trait RowsBefore<'a> {
    fn rfind_before(self, offset: u32) -> Option<&'a Row>;
}

impl<'a, I: Iterator<Item = &'a Row>> RowsBefore<'a> for I {
    fn rfind_before(self, offset: u32) -> Option<&'a Row> {
        self.filter(|row| row.place.span.end <= offset || row.place.span.start <= offset).last()
    }
}

/// The name at an offset of a text, with what stands before its last point.
pub fn name_at(text: &str, offset: u32) -> Option<Named<'_>> {
    let offset = (offset as usize).min(text.len());
    let bytes = text.as_bytes();
    let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let mut end = offset;
    while end < bytes.len() && inside(bytes[end]) {
        end += 1;
    }
    let mut start = offset;
    while start > 0 && inside(bytes[start - 1]) {
        start -= 1;
    }
    if start == end || bytes[start].is_ascii_digit() {
        return None;
    }
    // `self.a.b` up to the part under the cursor.
    while start > 1 && bytes[start - 1] == b'.' && inside(bytes[start - 2]) {
        start -= 1;
        while start > 0 && inside(bytes[start - 1]) {
            start -= 1;
        }
    }
    let line_end = text[end..].find('\n').map_or(text.len(), |n| end + n);
    let rest = text[end..line_end].trim_start();
    let after = rest.trim_start_matches(|c: char| "+-*/@%&|^<>".contains(c));
    let is_target =
        (rest.starts_with('=') && !rest.starts_with("==")) || (after.len() < rest.len() && after.starts_with('='));
    let at = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Some(Named { text: text.get(start..end)?, span: Span::new(at(start), at(end)), line_end: at(line_end), is_target })
}

#[cfg(test)]
mod tests {
    use super::name_at;

    #[test]
    fn names_with_what_they_belong_to() {
        let text = "y = self.weight.data + x2\nz += 1";
        let at = |word: &str| u32::try_from(text.find(word).expect("it is there")).expect("small");
        assert_eq!(name_at(text, at("weight") + 2).map(|n| n.text), Some("self.weight"));
        assert_eq!(name_at(text, at("self")).map(|n| n.text), Some("self"));
        assert_eq!(name_at(text, at("x2")).map(|n| (n.text, n.is_target)), Some(("x2", false)));
        assert!(name_at(text, 0).is_some_and(|n| n.is_target) && name_at(text, at("z")).is_some_and(|n| n.is_target));
        assert!(name_at(text, at("1")).is_none());
    }
}
