use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Every option of OpenAFS's programs, with a value where it takes one.
const EVERY: &[(&str, &str)] = &[
    (
        "dafileserver",
        "-L|-S|-banner|-implicit rl|-lock|-readonly|-admin-write|-saneacls|-cve-2018-7168-enforce|-b 90|-cb \
         64000|-vc 400|-l 400|-s 400|-sendsize 16384|-m 8|-spare 1024|-pctspare 10|-hr 2|-vattachpar \
         4|-abortthreshold 10|-busyat 600|-nobusy|-offline-timeout -1|-offline-shutdown-timeout \
         60|-vhandle-setaside 128|-vhandle-max-cachesize 4096|-vhandle-initial-cachesize 128|-vhashsize \
         11|-fs-state-dont-save|-fs-state-dont-restore|-fs-state-verify both|-vlrudisable|-vlruthresh \
         120|-vlruinterval 120|-vlrumax 8|-unsafe-nosalvage|-w 300|-novbc|-auditlog \
         file:/var/log/audit:host=/tmp|-audit-interface sysvmq|-d 5|-mrafslogs|-transarc-logs|-p \
         128|-syslog|-syslog 24|-enable_peer_stats|-enable_process_stats|-nojumbo|-jumbo|-rxbind|-rxdbg|-rxdbge|-rxpck \
         400|-rxmaxmtu 1400|-udpsize 1048576|-allow-dotted-principals|-realm A.ORG B.ORG|-sync \
         onclose|-logfile /var/log/FileLog|-config /etc/openafs/server",
    ),
    (
        "vlserver",
        "-noauth|-smallmem|-auditlog /var/log/audit|-audit-interface file|-config /etc/x|-d 1|-database \
         /var/x/vldb|-db /var/x/vldb|-logfile /x|-p 9|-syslog 3|-syslog|-transarc-logs|-enable_peer_stats|-enable_process_stats|-nojumbo|-jumbo|-rxbind|-rxmaxmtu \
         1400|-trace /var/log/trace|-restricted_query admin|-allow-dotted-principals|-s2scrypt rxgk-crypt",
    ),
    (
        "ptserver",
        "-database /var/x/prdb|-db /x|-default_access S---- S-M--|-groupdepth 7|-depth \
         7|-restricted|-restrict_anonymous|-auditlog /x|-audit-interface file|-config /x|-d 1|-logfile /x|-p \
         16|-syslog|-transarc-logs|-enable_peer_stats|-enable_process_stats|-rxbind|-rxmaxmtu \
         1400|-allow-dotted-principals|-s2scrypt never",
    ),
    (
        "davolserver",
        "-log|-rxbind|-allow-dotted-principals|-d 1|-p 16|-auditlog /x|-audit-interface file|-nojumbo|-jumbo|-rxmaxmtu \
         1400|-udpsize 1048576|-sleep 1/2|-enable_peer_stats|-enable_process_stats|-preserve-vol-stats|-clear-vol-stats|-syslog|-transarc-logs|-sync \
         always|-logfile /x|-config /x|-restricted_query anyuser|-s2scrypt inherit",
    ),
    (
        "dasalvager",
        "-partition /vicepa|-volumeid 536870912|-debug|-nowrite|-inodes|-force|-oktozap|-rootinodes|-salvagedirs|-blockreads|-parallel \
         all4|-tmpdir /tmp|-showlog|-showsuid|-showmounts|-orphans attach|-syslog|-syslogfacility \
         3|-datelogs|-DontSalvage|-forceDAFS|-f",
    ),
    (
        "salvageserver",
        "-partition a|-volumeid 1|-debug|-nowrite|-inodes|-oktozap|-rootinodes|-salvagedirs|-blockreads|-parallel \
         4|-tmpdir /tmp|-orphans ignore|-syslog|-syslogfacility 3|-client|-logfile /x|-transarc-logs",
    ),
];

/// Limits that no line of OpenAFS's lowers.
fn limits(config: &Config) -> [u64; 5] {
    [
        config.files.max_calls.0.into(),
        config.files.max_callbacks.0,
        config.net.receive_buffer.0.into(),
        config.net.send_buffer.0.into(),
        config.net.memory.0,
    ]
}

#[test]
fn every_option_is_answered_and_lowers_nothing() {
    let refused = ["-readonly", "-admin-write"];
    for (program, options) in EVERY {
        for option in options.split('|') {
            let mut config = Config::default();
            let before = limits(&config);
            let line = words(&format!("/usr/lib/openafs/{program} {option}"));
            let answer = apply(&line, &mut config);
            if refused.contains(&option) {
                let error = answer.unwrap_err().to_string();
                assert!(error.starts_with(option), "{program} {option}: {error}");
                continue;
            }
            let remarks = answer.unwrap();
            let [remark] = remarks.as_slice() else {
                panic!("{program} {option}: {remarks:?}");
            };
            let shown = words(option).join(" ");
            let why = remark.strip_prefix(&format!("{shown}: "));
            assert!(why.is_some_and(|why| why.len() > 20), "{remark}");
            let lowered = limits(&config)
                .iter()
                .zip(before)
                .any(|(now, before)| *now < before);
            assert!(!lowered, "{program} {option}");
        }
    }
}

#[test]
fn every_option_of_the_table_is_tried() {
    for option in OPTIONS {
        for (program, options) in EVERY {
            let of = program_of(program).unwrap();
            let tried = options
                .split('|')
                .any(|tried| tried.split_whitespace().next() == Some(option.name));
            // The two salvagers have options that the other has not.
            if option.of & of != 0 && of != table::SALVAGE {
                assert!(tried, "{program} {}", option.name);
            }
        }
    }
}

#[test]
fn a_command_line_of_a_large_site_is_understood() {
    let mut config = Config::default();
    let line = "-p 128 -busyat 600 -rxpck 400 -s 1200 -l 1200 -cb 65535 -b 240 -vc 1200 -sendsize 4000000 \
                -udpsize 4000000 -vhashsize 11 -realm OTHER.ORG -allow-dotted-principals -auditlog \
                /var/log/openafs/FileAuditLog";
    let remarks = apply(&words(line), &mut config).unwrap();
    assert_eq!(remarks.len(), 14);
    assert_eq!(config.security.realms, ["OTHER.ORG"]);
    assert!(config.security.allow_dotted_principals);
    // What serves 128 threads is less than what is there without a word.
    assert_eq!(limits(&config), limits(&Config::default()));
    assert!(
        remarks[1].contains("files.max_calls is 4096"),
        "{}",
        remarks[1]
    );
    apply(&words("-busyat 9000 -udpsize 16777216"), &mut config).unwrap();
    assert_eq!(config.files.max_calls.0, 9000);
    assert_eq!(config.net.receive_buffer.0, 16 << 20);
}

#[test]
fn lines_of_several_programs_follow_each_other() {
    let mut config = Config::default();
    let line = "/usr/lib/openafs/dafileserver -p 23 -auditlog a b /usr/lib/openafs/vlserver -restricted_query \
                admin ptserver -restrict_a -default_access S-M-- SOM-- davolserver -restricted_query anyuser";
    let remarks = apply(&words(line), &mut config).unwrap();
    assert_eq!(remarks.len(), 6);
    assert!(config.location.restricted_query);
    assert!(!config.volumes.restricted_query);
    assert!(config.protection.restrict_anonymous);
    assert_eq!(config.protection.group_access.0, "SOM--");
    config.protection.serving(Vec::new()).unwrap();
}

#[test]
fn what_is_out_of_range_is_refused_with_the_range() {
    for (line, says) in [
        ("-vhashsize 30", "6 to 28"),
        ("-p 0", "1 to 16384"),
        ("-cb 64", "10000 to"),
        ("-busyat x", "not a number"),
        ("-busyat", "takes a number"),
        ("-realm", "takes a word"),
        ("-realm -p 3", "takes a word"),
        ("-jumbograms", "not an option of OpenAFS's"),
        ("-fs-state", "Write it out"),
        ("-sync sometimes", "always, onclose, never"),
        ("ptserver -default_access S----", "two words"),
        ("ptserver -default_access S---- many", "somar"),
    ] {
        let error = apply(&words(line), &mut Config::default()).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{line}: {error:#}");
    }
}
