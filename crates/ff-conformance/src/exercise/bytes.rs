//! Bytes come back as they went in, small or large.

use super::{Fixture, item};

fn samples() -> Vec<Vec<u8>> {
    let every_value: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = every_value.iter().copied().cycle().take(300 * 1024).collect();
    vec![Vec::new(), vec![0], every_value, large, vec![0xff; 4096], vec![7; 1024 * 1024]]
}

pub async fn payloads(f: &Fixture) {
    for bytes in samples() {
        let id = f.submit(item().payload(bytes.clone())).await;
        assert!(*f.backend.payload(&id).await.unwrap().unwrap() == bytes);
        let claimed = f.claim().await;
        assert!(*claimed.payload == bytes, "a payload of {} bytes changed", bytes.len());
        f.backend.complete(&claimed.handle, None).await.unwrap();
        f.replay(&id).await.unwrap();
        let again = f.claim().await;
        assert!(*again.payload == bytes, "a payload of {} bytes was lost", bytes.len());
    }
}

pub async fn results(f: &Fixture) {
    for bytes in samples() {
        let (id, handle) = f.start(item().payload(b"in".to_vec())).await;
        f.backend.complete(&handle, Some(bytes.clone())).await.unwrap();
        let result = f.backend.result(&id).await.unwrap().expect("there is a result");
        assert!(*result == bytes, "a result of {} bytes changed", bytes.len());
        f.backend.complete(&handle, Some(bytes.clone())).await.expect("the same result again");
        assert_eq!(f.backend.payload(&id).await.unwrap().as_deref(), Some(&b"in"[..]));
        f.replay(&id).await.unwrap();
        assert!(f.backend.result(&id).await.unwrap().is_none());
        let again = f.claim().await;
        f.backend.complete(&again.handle, Some(b"other".to_vec())).await.unwrap();
        let result = f.backend.result(&id).await.unwrap();
        assert_eq!(result.as_deref(), Some(&b"other"[..]));
    }
}
