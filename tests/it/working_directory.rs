//! A process may change its working directory while a database is open, as daemons do.

use crate::support::alone::alone;
use siftdb::Db;
use std::env::set_current_dir;

#[test]
fn relative_paths_outlive_a_change_of_the_working_directory() {
    let name = "working_directory::relative_paths_outlive_a_change_of_the_working_directory";
    alone(name, "", || {
        let place = tempfile::tempdir().unwrap();
        set_current_dir(place.path()).unwrap();
        let db = Db::open("db").unwrap();
        db.put("a", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let db = Db::open("db").unwrap();
        let follower = Db::open_follower("db").unwrap();
        set_current_dir("/").unwrap();
        // The first write begins a log, which checks the lock.
        db.put("b", "2").unwrap();
        db.flush().unwrap();
        follower.refresh().unwrap();
        assert_eq!(follower.get("b").unwrap().unwrap(), "2");
        assert!(db.verify(|_| {}).unwrap().is_sound());
        db.close().unwrap();
        drop((db, follower));
        let db = Db::open(place.path().join("db")).unwrap();
        assert_eq!(db.get("a").unwrap().unwrap(), "1");
        assert_eq!(db.get("b").unwrap().unwrap(), "2");
    });
}

/// As from a setting that is not there: no database in the working directory is made, changed or
/// removed.
#[test]
fn an_empty_path_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let db = Db::open(place.path().join("db")).unwrap();
    assert!(Db::open("").is_err());
    assert!(Db::open_read_only("").is_err());
    assert!(Db::open_follower("").is_err());
    assert!(Db::repair("").is_err());
    assert!(Db::destroy("").is_err());
    assert!(db.checkpoint("").is_err());
    assert!(db.checkpoint_with("", &[]).is_err());
}
