//! Under which account the server runs: ours, or another one when we are root.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

const PASSWD: &str = "/etc/passwd";
const NAMES: [&str; 2] = ["postgres", "nobody"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Gives a folder to the account.
    pub fn own(self, folder: &Path) -> anyhow::Result<()> {
        let owned = std::os::unix::fs::chown(folder, Some(self.uid), Some(self.gid));
        owned.with_context(|| format!("changing the owner of {}", folder.display()))
    }

    /// Lets the command run as the account.
    pub fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

/// An account that may not do much.
pub fn unprivileged() -> anyhow::Result<Account> {
    let passwd = std::fs::read_to_string(PASSWD).with_context(|| format!("reading {PASSWD}"))?;
    let found = NAMES.iter().find_map(|name| find(&passwd, name));
    found.with_context(|| format!("{PASSWD} has none of the accounts {NAMES:?}"))
}

fn find(passwd: &str, name: &str) -> Option<Account> {
    let mut accounts = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let account = accounts.find(|fields| fields.first() == Some(&name))?;
    let number = |at: usize| account.get(at)?.parse().ok();
    Some(Account { uid: number(2)?, gid: number(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres-old:x:7:8::/:/bin/sh\n\
                      postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\nbad:x\n";
        assert_eq!(find(passwd, "postgres"), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(find(passwd, "nobody"), None);
        assert_eq!(find(passwd, "bad"), None);
    }
}
