use super::stat::{BACKEND_ROW, Stat, StatTable};
use super::state::StateTable;
use super::table::number;

/// The backends that a HAProxy has.
#[derive(Default)]
pub(super) struct Catalogue {
    entries: Vec<Entry>,
    servers: usize,
}

/// One backend.
pub(super) struct Entry {
    pub(super) name: String,
    /// HAProxy's number for it in this process.
    pub(super) id: u64,
    /// How it picks; empty at `level user`.
    pub(super) algo: String,
}

impl Catalogue {
    /// Takes over the answers of `show servers state` and of `show stat` for backends alone.
    pub(super) fn read(
        &mut self,
        states: &[u8],
        state: &mut StateTable,
        stats: &[u8],
        stat: &mut StatTable,
    ) -> Result<(), String> {
        self.servers = 0;
        self.entries.clear();
        state.read(states, |_, _, _| {
            self.servers += 1;
            Ok(())
        })?;
        stat.read(stats, |row| {
            if row.get(Stat::Kind) == BACKEND_ROW {
                let text = |column| String::from_utf8_lossy(row.get(column)).into_owned();
                let (name, algo) = (text(Stat::Proxy), text(Stat::Algorithm));
                self.entries.push(Entry { name, algo, id: number("iid", row.get(Stat::Id))? });
            }
            Ok(())
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// How many servers all of them have together.
    pub(super) fn servers(&self) -> usize {
        self.servers
    }
}
