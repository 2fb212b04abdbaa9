//! Cuts an input into what a target needs.

/// How much output an input makes at most, unless there is more to be tried: none takes long.
const OUTPUT_MAX: usize = 200_000;

/// Bytes to be used up. When there are none left, all numbers are 0 and all texts empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    room: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, room: OUTPUT_MAX }
    }

    /// Makes so much output at most.
    pub(crate) fn with_room(bytes: &'a [u8], room: usize) -> Self {
        Self { bytes, room }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// A text of less than 256 bytes.
    pub(crate) fn text(&mut self) -> &'a [u8] {
        let len = self.byte();
        self.take(len.into())
    }

    /// One of a few.
    pub(crate) fn one_of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[usize::from(self.byte()) % choices.len()]
    }

    /// Bytes as they are, or one of them up to 65535 times: what is long need not make the input so.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        let len = self.byte();
        if len < 0xf0 {
            return self.take(len.into()).to_vec();
        }
        let count = self.number().min(self.room);
        self.room -= count;
        vec![self.byte(); count]
    }

    /// `bytes` in pieces of the sizes that the input says; once it says nothing any more, in one.
    pub(crate) fn pieces<'b>(&mut self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let size = match self.byte() {
                0 => bytes.len(),
                // Of a page, say, and of its neighbours.
                size @ 0xf0.. => usize::from(size & 7) * 4096 + usize::from(self.byte()),
                size => size.into(),
            };
            let (piece, rest) = bytes.split_at(size.clamp(1, bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}
