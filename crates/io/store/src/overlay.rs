//! A file that can be written without being changed: blocks that are written live in memory.
//!
//! Opening a database may repair it, which means writing to it. A file that turns out to be damaged
//! or foreign must stay as it is, so the first look at it goes through this.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

const BLOCK: u64 = 4096;

#[derive(Debug)]
struct State {
    len: u64,
    /// How much of the file still shows through where no block covers it: shrinks with `set_len`.
    base_len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Overlay {
    file: File,
    state: Mutex<State>,
}

impl Overlay {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let state = State { len, base_len: len, blocks: BTreeMap::new() };
        Ok(Overlay { file, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the file holds; zeros beyond its end.
    fn read_base(&self, base_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let shown = base_len.saturating_sub(offset).min(out.len() as u64) as usize;
        out[shown..].fill(0);
        self.file.read_exact_at(&mut out[..shown], offset)
    }

    /// Calls `each` with the block, the range in it and the range in the buffer.
    fn pieces(
        offset: u64,
        len: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % BLOCK) as usize;
            let count = (BLOCK as usize - start).min(len - done);
            each(at / BLOCK, start..start + count, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

fn check_range(state: &State, offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= state.len => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the file")),
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        check_range(&state, offset, out.len())?;
        self.read_base(state.base_len, offset, out)?;
        Self::pieces(offset, out.len(), |block, within, buffer| {
            if let Some(bytes) = state.blocks.get(&block) {
                out[buffer].copy_from_slice(&bytes[within]);
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.base_len = state.base_len.min(len);
        state.len = len;
        let keep_below = len.div_ceil(BLOCK);
        state.blocks.split_off(&keep_below);
        // What is cut off reads as zeros if the file grows again.
        if let Some(last) = state.blocks.get_mut(&(len / BLOCK)) {
            last[(len % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        check_range(&state, offset, data.len())?;
        let base_len = state.base_len;
        Self::pieces(offset, data.len(), |block, within, buffer| {
            let bytes = match state.blocks.entry(block) {
                Entry::Occupied(old) => old.into_mut(),
                Entry::Vacant(new) => {
                    let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
                    self.read_base(base_len, block * BLOCK, &mut bytes)?;
                    new.insert(bytes)
                }
            };
            bytes[within].copy_from_slice(&data[buffer]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn behaves_as_a_file_and_leaves_the_file_alone() {
        let mut file = tempfile::tempfile().unwrap();
        let original: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&original).unwrap();
        let overlay = Overlay::new(file.try_clone().unwrap()).unwrap();
        let mut model = original.clone();
        // Writes over block borders, shrinking, growing: always as a plain vector of bytes would.
        let steps: [(u64, usize, Option<usize>); 6] = [
            (4_000, 200, None),
            (9_990, 10, Some(5_000)),
            (0, 5_000, Some(20_000)),
            (8_191, 8_194, Some(8_200)),
            (8_192, 8, Some(4_096)),
            (4_095, 1, Some(30_000)),
        ];
        for (round, (offset, len, resize)) in steps.into_iter().enumerate() {
            let data = vec![round as u8 + 1; len];
            overlay.write(offset, &data).unwrap();
            model[offset as usize..offset as usize + len].copy_from_slice(&data);
            if let Some(len) = resize {
                overlay.set_len(len as u64).unwrap();
                model.resize(len, 0);
            }
            let mut seen = vec![0; model.len()];
            overlay.read(0, &mut seen).unwrap();
            assert!(seen == model, "round {round}");
            assert!(overlay.read(model.len() as u64, &mut [0]).is_err());
            assert!(overlay.write(u64::MAX, &[0]).is_err());
        }
        let mut kept = vec![0; original.len()];
        file.read_exact_at(&mut kept, 0).unwrap();
        assert!(kept == original);
    }
}
