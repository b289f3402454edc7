//! Changes of HTTP/2 frames as frames: a changed payload gets its length back, so that the frames after it stay readable.

use crate::chance::Chance;

/// Every HTTP/2 connection of a client begins with it.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADER_BYTES: usize = 9;

/// The kinds of RFC 9113 and one that it does not have.
const KINDS: u8 = 11;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Changes one frame, or their order. `change_bytes` changes a payload.
pub(super) fn change(
    bytes: &[u8],
    chance: &mut Chance,
    change_bytes: impl FnOnce(&mut Vec<u8>, &mut Chance),
) -> Vec<u8> {
    let (mut frames, rest) = read(bytes.strip_prefix(PREFACE).unwrap_or(bytes));
    let at = chance.below(frames.len());
    let other = chance.below(frames.len());
    let Some(frame) = frames.get_mut(at) else {
        let mut bytes = bytes.to_vec();
        change_bytes(&mut bytes, chance);
        return bytes;
    };
    match chance.below(8) {
        0 => frame.flags ^= 1 << chance.below(8),
        1 => frame.kind = chance.byte() % KINDS,
        2 => frame.stream = u32::from(chance.byte()) % 8,
        3 => frames.swap(at, other),
        4 => drop(frames.remove(at)),
        5 => {
            let copy = frame.clone();
            frames.insert(other, copy);
        }
        6 => {
            const CONTINUATION: u8 = 9;
            let cut = chance.below(frame.payload.len() + 1);
            let (stream, flags) = (frame.stream, frame.flags & 4);
            let payload = frame.payload.split_off(cut);
            frame.flags &= !4;
            frames.insert(at + 1, Frame { kind: CONTINUATION, flags, stream, payload });
        }
        _ => change_bytes(&mut frame.payload, chance),
    }
    let mut changed = PREFACE.to_vec();
    frames.iter().for_each(|frame| frame.write(&mut changed));
    changed.extend(rest);
    changed
}

impl Frame {
    fn write(&self, to: &mut Vec<u8>) {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        to.extend(length.iter().skip(1));
        to.extend([self.kind, self.flags]);
        to.extend(self.stream.to_be_bytes());
        to.extend(&self.payload);
    }
}

/// The whole frames, and the bytes after them.
fn read(mut bytes: &[u8]) -> (Vec<Frame>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((header, after)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let [high, middle, low, kind, flags, stream @ ..] = *header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes(stream);
        frames.push(Frame { kind, flags, stream, payload: payload.to_vec() });
        bytes = after;
    }
    (frames, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_as_they_were_read() {
        let frame = Frame { kind: 1, flags: 5, stream: 3, payload: b"abc".to_vec() };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        bytes.extend(b"rest");
        assert_eq!(read(&bytes), (vec![frame], &b"rest"[..]));
    }

    #[test]
    fn a_changed_connection_begins_with_the_preface() {
        let settings = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        for seed in 0..100 {
            let mut chance = Chance::new(seed);
            let changed = change(&settings, &mut chance, |payload, _| payload.push(1));
            assert!(changed.starts_with(PREFACE));
        }
    }
}
