//! An input as a row of choices. In: bytes. Out: numbers; zeros when they are used up, so that every input means something.
//! Never: chance. Next: `programs.rs`.

/// What is left of an input.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `bound`; 0 for an empty range.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = match bound {
            0 | 1 => return 0,
            2..=256 => usize::from(self.byte()),
            _ => usize::from(self.byte()) << 8 | usize::from(self.byte()),
        };
        number % bound
    }

    /// One of several.
    pub fn pick<'b, T>(&mut self, items: &'b [T]) -> Option<&'b T> {
        items.get(self.below(items.len()))
    }

    /// So many bytes, or as many as there are.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The parts between the marks.
    pub fn parts(&mut self, mark: u8) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.rest().split(move |byte| *byte == mark)
    }
}
