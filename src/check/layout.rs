//! Where the definitions of a text stand while it is edited. In: versions of a text. Out: the same text with whitespace at the ends of
//! blank lines, so that what follows an edited definition keeps its offsets, and results about it stay true. Never: another line or
//! another column of anything but the end of a blank line. Next: `session.rs`, its only user.

use crate::syntax::gaps;

/// Room that a definition is given to grow.
const ROOM: usize = 512;

/// A text in parts, each with the offset at which it stands.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    text: String,
    /// Where a part starts in the text, and where it stands.
    parts: Vec<(usize, usize)>,
}

impl Layout {
    pub fn new(text: String) -> Layout {
        let mut out = Layout { parts: starts(&text).into_iter().map(|at| (at, at)).collect(), text };
        out.spread(1);
        out
    }

    /// The text as it is in the editor.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The layout of a later version, with unchanged parts where they were if there is room.
    #[must_use]
    pub fn edited(&self, text: String) -> Layout {
        let mut out = Layout { parts: starts(&text).into_iter().map(|at| (at, at)).collect(), text };
        let (old, new) = (self.parts.len(), out.parts.len());
        let same = |a: usize, b: usize| self.part(a) == out.part(b);
        let head = (0..old.min(new)).take_while(|i| same(*i, *i)).count();
        let left = old.min(new) - head;
        let tail = (0..left).take_while(|i| same(old - 1 - i, new - 1 - i)).count();
        for i in 0..head {
            out.parts[i].1 = self.parts[i].1;
        }
        for i in 0..tail {
            out.parts[new - 1 - i].1 = self.parts[old - 1 - i].1;
        }
        if !out.fit(self, head, new - tail, (old == new, old > head + tail)) {
            out.spread(head.max(1));
        }
        out
    }

    /// Places the parts between two that keep their places; whether there is room.
    /// `alike`: there are as many as before; `had`: there were some.
    fn fit(&mut self, before: &Layout, from: usize, to: usize, (alike, had): (bool, bool)) -> bool {
        let mut end = match from.checked_sub(1) {
            Some(last) => self.parts[last].1 + self.part(last).len(),
            None => 0,
        };
        for i in from..to {
            let wanted = if alike || had && i == from { before.parts.get(i).map_or(0, |part| part.1) } else { end };
            let room = if i == 0 { 0 } else { wanted };
            if alike && room < end {
                return false;
            }
            self.parts[i].1 = room.max(end);
            end = self.parts[i].1 + self.part(i).len();
        }
        self.parts.get(to).is_none_or(|next| end <= next.1)
    }

    /// Places parts anew, with room behind each.
    fn spread(&mut self, from: usize) {
        for i in from..self.parts.len() {
            let end = self.parts[i - 1].1 + self.part(i - 1).len();
            self.parts[i].1 = (end + 2 * ROOM).next_multiple_of(ROOM);
        }
    }

    fn part(&self, i: usize) -> &str {
        let end = self.parts.get(i + 1).map_or(self.text.len(), |next| next.0);
        &self.text[self.parts[i].0..end]
    }

    /// The text with its parts where they stand.
    pub fn spaced(&self) -> String {
        let size = self.parts.last().map_or(0, |last| last.1) + ROOM;
        let mut out = String::with_capacity(size.max(self.text.len()));
        for (i, (_, at)) in self.parts.iter().enumerate() {
            out.extend(std::iter::repeat_n(' ', at.saturating_sub(out.len())));
            out.push_str(self.part(i));
        }
        out
    }
}

/// Where parts start: the text itself, and the end of each blank line before a definition.
fn starts(text: &str) -> Vec<usize> {
    let mut out = vec![0];
    out.extend(gaps(text).into_iter().map(|at| at as usize).filter(|at| *at > 0));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "import a\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n\n\nclass C:\n    x = 1\n\n    def h(self):\n        pass\n";

    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(str::trim_end).collect()
    }

    #[test]
    fn what_follows_an_edit_stays() {
        let before = Layout::new(TEXT.to_string());
        assert_eq!(lines(&before.spaced()), lines(TEXT));
        let edited = TEXT.replace("return 1", "y = 12\n    return y + 1");
        let after = before.edited(edited.clone());
        assert_eq!(lines(&after.spaced()), lines(&edited));
        for name in ["def g", "class C", "def h"] {
            assert_eq!(before.spaced().find(name), after.spaced().find(name), "{name}");
        }
        let more = edited.replace("def g", "def new():\n    pass\n\n\ndef g");
        let third = after.edited(more.clone());
        assert_eq!(lines(&third.spaced()), lines(&more));
        assert_eq!(third.spaced().find("def h"), after.spaced().find("def h"));
        let huge = more.replace("return 2", &"x = 1\n    ".repeat(200));
        let last = third.edited(huge.clone());
        assert_eq!(lines(&last.spaced()), lines(&huge));
        assert_eq!(last.spaced().find("def f"), third.spaced().find("def f"));
        assert_eq!(lines(&last.edited(String::new()).spaced()), lines(""));
        assert_eq!(lines(&Layout::new(String::new()).edited(TEXT.to_string()).spaced()), lines(TEXT));
    }
}
