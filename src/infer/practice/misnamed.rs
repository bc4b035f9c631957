//! Marks under another name than the one that is asked for: `setattr(p, "sequence_parallel_enabled", True)` where the reduction takes
//! those with `sequence_parallel`. In: the reducers and marks of a project. Out: a reducer whose mark nothing sets, beside a mark whose
//! name goes on from it, or it from that, which nothing reads. Never: a mark that any line reads of anything but a configuration.
//! Next: `marks.rs`.

use super::found::Practice;
use super::marks::asked;
use super::{Found, Lint};
use crate::source::{FileId, Name, Place, Span};

/// Objects of which an attribute is a setting, not a mark: the last part of what stands before the point.
const SETTINGS: &[&str] = &["self", "config", "cfg", "args", "cls", "conf", "parser", "options", "opts"];

/// Reducers that ask for a mark by a name that nobody gave.
pub fn misnamed(lint: &Lint<'_>, out: &mut Found) {
    let marks = lint.marks();
    let reducers = lint.reducers();
    let summed = reducers.all.iter().filter_map(|r| Some((asked(r)?, r.guard.unwrap_or(r.place))));
    // Marks by which a function collects for its caller are asked for as well.
    let collected = reducers.collecting.iter().map(|(mark, place)| (mark, *place));
    for (mark, place) in summed.chain(collected).filter(|(mark, _)| !marks.sets(mark)) {
        let Some((other, set)) = given_as(lint, mark) else { continue };
        out.push((place, Practice::MarkMisnamed { asked: mark.clone(), mark: other.clone(), set }));
    }
}

/// The one name like that of a mark under which marks are set and never read, and where.
pub fn given_as<'l>(lint: &'l Lint<'_>, mark: &Name) -> Option<(&'l Name, Place)> {
    let mut likes = lint.marks().all().filter(|other| goes_on(mark, other));
    let (Some(other), None) = (likes.next(), likes.next()) else { return None };
    Some((other, only_set(lint, other)?))
}

/// Whether one name is the other with further words.
fn goes_on(a: &str, b: &str) -> bool {
    let longer = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'));
    longer(a, b) || longer(b, a)
}

/// Where a mark is set on something, if nothing reads it.
fn only_set(lint: &Lint<'_>, mark: &Name) -> Option<Place> {
    let mut first = None;
    for file in lint.files.saying(mark) {
        let text = lint.files[file].whole();
        for (at, _) in text.match_indices(mark.as_str()) {
            match used(text, at, mark) {
                Used::Set => first = first.or(Some(line_of(file, text, at))),
                Used::Read => return None,
                Used::Otherwise => {}
            }
        }
    }
    first
}

/// What is done with an attribute where its name stands.
enum Used {
    Set,
    Read,
    Otherwise,
}

fn used(text: &str, at: usize, mark: &str) -> Used {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (before, after) = (&text[..at], &text[at + mark.len()..]);
    if before.ends_with(is_word) || after.starts_with(is_word) {
        return Used::Otherwise;
    }
    let line = before.rsplit('\n').next().unwrap_or_default();
    if line.trim_start().starts_with('#') {
        return Used::Otherwise;
    }
    if before.ends_with(['"', '\'']) && after.starts_with(['"', '\'']) {
        return match (line.contains("setattr("), line.contains("(")) {
            (true, _) => Used::Set,
            // A string in another call may read it, or be a key of a configuration.
            (false, _) if ["getattr(", "hasattr("].iter().any(|call| line.contains(call)) => {
                let of = line.rsplit("attr(").next().unwrap_or_default().split(',').next().unwrap_or_default();
                if is_setting(of) { Used::Otherwise } else { Used::Read }
            }
            (false, true) => Used::Read,
            (false, false) => Used::Otherwise,
        };
    }
    let Some(base) = before.strip_suffix('.') else { return Used::Otherwise };
    let base = base.rsplit(|c: char| !is_word(c) && c != '.').next().unwrap_or_default();
    let then = after.trim_start_matches(' ');
    match then.starts_with('=') && !then.starts_with("==") {
        _ if is_setting(base) => Used::Otherwise,
        true => Used::Set,
        false => Used::Read,
    }
}

fn is_setting(base: &str) -> bool {
    let last = base.trim().rsplit('.').next().unwrap_or_default();
    SETTINGS.contains(&last) || last.ends_with("config") || last.ends_with("args")
}

/// The line of a place, without what surrounds it.
fn line_of(file: FileId, text: &str, at: usize) -> Place {
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let from = start + (line.len() - line.trim_start().len());
    Place { file, span: Span::new(from as u32, (from + line.trim().len()) as u32) }
}
