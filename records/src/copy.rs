//! Copies of a line's size.
//!
//! A call of memcpy(3) costs more than the copy of a line does, and musl's more than most: it copies by `rep movsq`, which
//! takes its time to begin, and is slow for all that does not lie as the processor likes it.

/// From this length on it is worth while to begin at a line of the cache.
const LONG: usize = 2048;

/// What the processor stores at once at best.
const CACHE_LINE: usize = 64;

/// Copies `from` to the beginning of `to`, which has room for it.
#[inline]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    let to = &mut to[..from.len()];
    match from.len() {
        LONG.. => copy_lines(from, to),
        128.. => copy_blocks(from, to),
        64.. => copy_ends::<64>(from, to),
        32.. => copy_ends::<32>(from, to),
        16.. => copy_ends::<16>(from, to),
        8.. => copy_ends::<8>(from, to),
        4.. => copy_ends::<4>(from, to),
        2.. => copy_ends::<2>(from, to),
        1 => to[0] = from[0],
        0 => {}
    }
}

/// Copies what is long: to the edge of a line of the cache, and from there on whole lines, as what is stored across an edge
/// is stored twice.
#[inline]
fn copy_lines(from: &[u8], to: &mut [u8]) {
    let edge = to.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE);
    copy_ends::<CACHE_LINE>(&from[..CACHE_LINE], &mut to[..CACHE_LINE]);
    copy_blocks(&from[edge..], &mut to[edge..]);
}

/// Copies what is at least a block long: all whole blocks, and the last bytes as one more.
#[inline]
fn copy_blocks(from: &[u8], to: &mut [u8]) {
    let (blocks, _) = from.as_chunks::<128>();
    let (rooms, _) = to.as_chunks_mut::<128>();
    for (block, room) in blocks.iter().zip(rooms) {
        // In halves: whole blocks one after the other the compiler would make a call of memcpy(3) again.
        copy_ends::<64>(block, room);
    }
    if let (Some(block), Some(room)) = (from.last_chunk::<128>(), to.last_chunk_mut::<128>()) {
        copy_ends::<64>(block, room);
    }
}

/// Copies what is `N` to twice as many bytes long: the first and the last `N`, which may overlap. A copy of fixed size is a
/// few moves of the processor's largest registers.
#[inline]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_all_of_it_and_nothing_else() {
        let bytes: Vec<u8> = (0..251).cycle().take(2 * LONG).collect();
        for start in 0..16 {
            for len in 0..=LONG + 64 {
                // At each distance from the edge of a line of the cache, once the lengths have gone through all.
                let place = 16 + (start * 4 + len) % CACHE_LINE;
                let mut to = vec![255; place + len + 16];
                let from = &bytes[start..start + len];
                copy(from, &mut to[place..]);
                assert!(to[place..place + len] == *from, "{len} bytes from {start} to {place}");
                assert!(to[..place].iter().chain(&to[place + len..]).all(|&byte| byte == 255), "beside {len} bytes");
            }
        }
    }
}
