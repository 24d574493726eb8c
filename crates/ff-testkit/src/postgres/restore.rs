//! Backups and point-in-time restores: the commits after a point are lost, as after a real restore
//! or a failover to a standby that had not received them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::Cluster;

impl Cluster {
    /// Takes a base backup; [`Self::restore`] begins with the last one. The cluster must have been
    /// started with [`archive`](super::ClusterOptions::archive).
    pub fn back_up(&self) -> anyhow::Result<()> {
        let backup = self.backup();
        if backup.exists() {
            fs::remove_dir_all(&backup).context("removing the last backup")?;
        }
        let mut command = self.command("pg_basebackup");
        command.args(["--checkpoint=fast", "--no-sync", "--username=postgres", "--pgdata"]);
        command.arg(&backup).arg("--host").arg(self.sockets.path());
        command.arg("--port").arg(self.port.to_string());
        run(command)
    }

    /// Names the state as it is now, for [`Self::restore`].
    pub fn create_restore_point(&self, name: &str) -> anyhow::Result<()> {
        let sql = format!("SELECT pg_create_restore_point('{name}')");
        self.psql(&self.url(), &sql).map(drop)
    }

    /// Replaces the data by the last backup, recovers it from the archive up to the restore point
    /// and starts the server again, on the same port. Whatever was committed later is lost.
    pub fn restore(&mut self, point: &str) -> anyhow::Result<()> {
        if self.server.is_some() {
            // An orderly end archives the last segment.
            self.stop()?;
        }
        let (data, archive) = (self.data(), self.archive());
        fs::remove_dir_all(&data).context("removing the data")?;
        let mut copy = self.as_account(Command::new("cp"));
        copy.arg("-a").arg(self.backup()).arg(&data);
        run(copy)?;
        // Without a hot standby nothing is answered before the recovery has ended.
        let settings = format!(
            "restore_command = 'cp \"{}/%f\" \"%p\"'\nrecovery_target_name = '{point}'\n\
             recovery_target_action = 'promote'\nhot_standby = off\n",
            archive.display()
        );
        let mut write = self.as_account(Command::new("sh"));
        write.args([
            "-c",
            "printf %s \"$1\" >> \"$2/postgresql.auto.conf\"; > \"$2/recovery.signal\"",
        ]);
        write.args(["sh", &settings]).arg(&data);
        run(write)?;
        self.restart()
    }

    /// Makes the archive's folder and returns the settings that fill it.
    pub(super) fn archiving(&self) -> anyhow::Result<[(String, String); 2]> {
        let archive = self.archive();
        fs::create_dir(&archive).with_context(|| format!("making {}", archive.display()))?;
        if let Some(account) = self.account {
            account.own(&archive)?;
        }
        let command = format!("cp \"%p\" \"{}/%f\"", archive.display());
        let settings = [("archive_mode", "on"), ("archive_command", &*command)];
        Ok(settings.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn archive(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}
