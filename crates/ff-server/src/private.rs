//! Files and folders that only the owner of the process can read.

use std::fs;
#[cfg(unix)]
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a folder, and the ones above it that are missing, with no access for others from the
/// first moment. One that exists is left as it is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    create_folder(parent)?;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // Another process may have created it in the meantime.
    builder.recursive(true).create(path)?;
    // The name of the folder has to survive a power cut as its files do.
    #[cfg(unix)]
    {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Writes a new file that only its owner can read.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// Warns if others than its owner have access to something that was there before. It is left as it
/// is: its permissions may have been widened on purpose.
pub fn warn_of_access(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let Ok(found) = fs::metadata(path) else { return };
        let mode = found.permissions().mode() & 0o777;
        let narrow = if found.is_dir() { "700" } else { "600" };
        if mode & 0o077 != 0 {
            tracing::warn!(
                path = %path.display(), mode = format!("{mode:o}"),
                "others than the owner have access; `chmod {narrow}` ends that"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use crate::{Config, open, root_token};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn only_the_owner_can_read_what_a_server_makes() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("new/data");
        let config = Config { data: data.clone(), ..Config::default() };
        let backend = open(&config).await.unwrap();
        root_token(&config, &*backend.engine()).await.unwrap().expect("a first token");
        assert_eq!((mode(&data), mode(data.parent().unwrap())), (0o700, 0o700));
        let mut seen = Vec::new();
        for entry in std::fs::read_dir(&data).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        backend.close().await;
        for name in ["flowfabric.db", "flowfabric.db-wal", "root-token", "waitpoint-secrets"] {
            assert!(seen.iter().any(|one| one == name), "{name}: {seen:?}");
        }
    }
}
