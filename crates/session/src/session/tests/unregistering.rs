//! Unregistering and closing.

use super::*;

/// Found by the simulator: the session attached again for ever, as fast as the node answered.
#[test]
fn unregistering_an_unsent_member_of_another_client_ends_at_once() {
    let (mut story, _) = Story::attached(&["a"]);
    let (_, registration) = story.register("b");
    let operation = story.session.unregister("b", registration, None, &mut story.out).unwrap();
    let requests = story.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    story.reject_request(requests[0].seq, Error::new(ErrorCode::AlreadyRegistered, "of another client"));
    assert_eq!(story.done(operation), Some(Ok(String::new())));
    assert!(story.sent().is_empty(), "there is nothing that an attach could say");
}

#[test]
fn an_unanswered_unregistration_is_repeated() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let operation = story.session.unregister("m1", registrations[0], None, &mut story.out).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    let attach = story.connect();
    assert_eq!((ids(&attach), attach.unregistered.as_slice()), (vec![], ["m1".to_owned()].as_slice()));
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok(String::new())));
}

/// C13: the node that acknowledged it may be lost before another node has it.
#[test]
fn an_acknowledged_unregistration_is_repeated_until_it_is_replicated() {
    let (mut story, registrations) = Story::attached(&["m1", "m2"]);
    for (index, id) in ["m1", "m2"].iter().enumerate() {
        let operation = story.session.unregister(id, registrations[index], None, &mut story.out).unwrap();
        let request = story.requests().pop().unwrap();
        story.receive_answer(v1::Answer { seq: request.seq, written: 5 + index as u64, ..v1::Answer::default() });
        assert_eq!(story.done(operation), Some(Ok(String::new())));
    }
    story.replicated(5);
    story.lose();
    let attach = story.connect();
    assert_eq!(attach.unregistered, ["m2"], "the first one is replicated");
    // Numbers of another node.
    story.accept_with(&attach, 3);
    story.replicated(2);
    story.lose();
    let attach = story.connect();
    assert_eq!(attach.unregistered, ["m2"]);
    story.accept_with(&attach, 4);
    story.replicated(4);
    story.lose();
    let attach = story.connect();
    assert!(attach.unregistered.is_empty(), "another node has it");
}

#[test]
fn an_id_that_is_registered_again_is_no_longer_unregistered() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    story.session.unregister("m1", registrations[0], None, &mut story.out).unwrap();
    let request = story.requests().pop().unwrap();
    story.receive_answer(v1::Answer { seq: request.seq, written: 5, ..v1::Answer::default() });
    let (_, registration) = story.register("m1");
    let request = story.requests().pop().unwrap();
    story.receive_answer(v1::Answer { seq: request.seq, version: "v".to_owned(), ..v1::Answer::default() });
    story.session.unregister("m1", registration, None, &mut story.out).unwrap();
    let request = story.requests().pop().unwrap();
    story.lose();
    let attach = story.connect();
    assert_eq!((ids(&attach), attach.unregistered.as_slice()), (vec![], ["m1".to_owned()].as_slice()));
    assert!(matches!(request.operation, Some(v1::request::Operation::Unregister(_))));
}

/// Found by the simulator: the session attached again for ever, a thousand times a second.
#[test]
fn unregistering_a_member_of_another_client_ends() {
    let mut story = Story::new();
    let (registered, registration) = story.register("m1");
    let operation = story.session.unregister("m1", registration, None, &mut story.out).unwrap();
    assert_eq!(story.code(registered), Some(ErrorCode::NotRegistered), "it was never sent");
    let attach = story.connect();
    assert!(attach.unregistered.is_empty() && attach.members.is_empty());
    story.accept(&attach);
    let requests = story.requests();
    if let [request] = requests.as_slice() {
        story.reject_request(request.seq, Error::new(ErrorCode::PermissionDenied, "another client's"));
    }
    assert!(story.sent().is_empty(), "no second attach");
    assert_eq!(story.done(operation), Some(Ok(String::new())));
}

#[test]
fn registering_again_what_is_being_unregistered_keeps_it() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let gone = story.session.unregister("m1", registrations[0], None, &mut story.out).unwrap();
    let (again, _) = story.register("m1");
    story.lose();
    let attach = story.connect();
    assert_eq!((ids(&attach), attach.unregistered.len()), (vec!["m1"], 0));
    story.accept(&attach);
    assert!(story.done(gone).unwrap().is_ok());
    assert!(story.done(again).unwrap().is_ok());
    assert!(story.requests().is_empty());
}

#[test]
fn a_registration_sent_but_not_answered_in_time_is_unregistered() {
    let (mut story, _) = Story::attached(&[]);
    let deadline = story.now + SECOND;
    let (operation, _) = story.session.register(MemberSpec::new("m1", "s"), false, Some(deadline)).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.now = deadline;
    story.session.wake(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::OutcomeUnknown));
    let requests = story.requests();
    assert!(matches!(&requests[0].operation, Some(v1::request::Operation::Unregister(u)) if u.id == "m1"));
}

#[test]
fn closing_unregisters_everything_even_across_a_loss() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.session.close(story.now, &mut story.out);
    assert!(matches!(story.sent().pop(), Some(ToNode::Close(_))));
    story.lose();
    assert!(!story.out.contains(&Effect::Closed { replicated: true }));
    let attach = story.connect();
    assert_eq!((ids(&attach).len(), attach.unregistered.len()), (0, 1));
    story.accept(&attach);
    assert!(matches!(story.sent().pop(), Some(ToNode::Close(_))));
    story.receive(FromNode::Closed(v1::Closed::default()));
    assert!(story.out.contains(&Effect::Closed { replicated: true }));
    assert_eq!(story.session.next_wake(), None);
    assert_eq!(
        story.session.register(MemberSpec::new("m", "s"), false, None).unwrap_err().code,
        ErrorCode::FailedPrecondition
    );
}

/// C18: the node has no connection to the others, and another one has.
#[test]
fn a_close_that_one_node_has_is_repeated_at_another() {
    let unreplicated = || FromNode::Closed(v1::Closed { error: None, unreplicated: true });
    for second in [FromNode::Closed(v1::Closed::default()), unreplicated()] {
        let (mut story, _) = Story::attached(&["m1"]);
        story.session.close(story.now, &mut story.out);
        story.receive(unreplicated());
        assert!(!story.out.iter().any(|effect| matches!(effect, Effect::Closed { .. })));
        let attach = story.connect();
        assert_eq!((ids(&attach).len(), &attach.unregistered[..]), (0, &["m1".to_owned()][..]));
        story.accept(&attach);
        assert!(matches!(story.sent().pop(), Some(ToNode::Close(_))));
        let replicated = second != unreplicated();
        story.receive(second);
        assert!(story.out.contains(&Effect::Closed { replicated }));
        assert_eq!(story.session.next_wake(), None);
    }
}

#[test]
fn a_close_without_members_is_not_repeated() {
    let (mut story, _) = Story::attached(&[]);
    story.session.close(story.now, &mut story.out);
    story.receive(FromNode::Closed(v1::Closed { error: None, unreplicated: true }));
    assert!(story.out.contains(&Effect::Closed { replicated: true }));
}

#[test]
fn a_close_that_one_node_has_ends_although_no_other_answers() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.session.close(story.now, &mut story.out);
    story.receive(FromNode::Closed(v1::Closed { error: None, unreplicated: true }));
    story.now += 5 * SECOND;
    story.session.wake(story.now, &mut story.out);
    assert!(story.out.contains(&Effect::Closed { replicated: false }));
    assert_eq!(story.session.next_wake(), None);
}

#[test]
fn closing_without_members_needs_no_node() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    story.session.close(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::NotRegistered));
    assert!(story.out.contains(&Effect::Closed { replicated: true }));
}
