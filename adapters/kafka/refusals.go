package kafka

import (
	"errors"

	"github.com/IBM/sarama"
)

// permanent are the answers of a broker that are about the message itself, whatever the broker's
// state: sent again as it is, it is refused again. All other codes, and those that are not known
// here, may pass: an unknown topic, a right that is missing, replicas that are away, a leader that
// moved, a timeout. What is parked for one of those would be parked by the thousand.
//
// Two that look like the message's are not. ErrInvalidTimestamp is about our clock: a message has no
// time of its own, Kafka's client stamps it whenever it is sent, and a worker whose clock is wrong would
// park everything. ErrInvalidMessage says that the bytes did not arrive as they were sent, and Kafka's
// clients send them again; a message without a key on a compacted topic, for which brokers before 2.4
// gave it, too, is ErrInvalidRecord.
var permanent = map[sarama.KError]string{
	sarama.ErrInvalidMessageSize:          "of an impossible size",
	sarama.ErrMessageSizeTooLarge:         "larger than the topic's max.message.bytes",
	sarama.ErrMessageSetSizeTooLarge:      "alone larger than the topic's segment.bytes",
	sarama.ErrUnsupportedForMessageFormat: "with headers, which the topic's format has not",
	sarama.ErrInvalidRecord:               "refused by the broker's validation",
}

// transient are all others that the client knows, so that a new one is looked at before it is taken for
// one of them.
var transient = []sarama.KError{
	sarama.ErrUnknown, sarama.ErrNoError, sarama.ErrOffsetOutOfRange, sarama.ErrInvalidMessage,
	sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
	sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable,
	sarama.ErrStaleControllerEpochCode, sarama.ErrOffsetMetadataTooLarge, sarama.ErrNetworkException,
	sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
	sarama.ErrInvalidTopic, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
	sarama.ErrInvalidRequiredAcks, sarama.ErrIllegalGeneration, sarama.ErrInconsistentGroupProtocol,
	sarama.ErrInvalidGroupId, sarama.ErrUnknownMemberId, sarama.ErrInvalidSessionTimeout, sarama.ErrRebalanceInProgress,
	sarama.ErrInvalidCommitOffsetSize, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed,
	sarama.ErrClusterAuthorizationFailed, sarama.ErrInvalidTimestamp, sarama.ErrUnsupportedSASLMechanism,
	sarama.ErrIllegalSASLState, sarama.ErrUnsupportedVersion, sarama.ErrTopicAlreadyExists, sarama.ErrInvalidPartitions,
	sarama.ErrInvalidReplicationFactor, sarama.ErrInvalidReplicaAssignment, sarama.ErrInvalidConfig,
	sarama.ErrNotController, sarama.ErrInvalidRequest, sarama.ErrPolicyViolation, sarama.ErrOutOfOrderSequenceNumber,
	sarama.ErrDuplicateSequenceNumber, sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidTxnState,
	sarama.ErrInvalidProducerIDMapping, sarama.ErrInvalidTransactionTimeout, sarama.ErrConcurrentTransactions,
	sarama.ErrTransactionCoordinatorFenced, sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrSecurityDisabled,
	sarama.ErrOperationNotAttempted, sarama.ErrKafkaStorageError, sarama.ErrLogDirNotFound,
	sarama.ErrSASLAuthenticationFailed, sarama.ErrUnknownProducerID, sarama.ErrReassignmentInProgress,
	sarama.ErrDelegationTokenAuthDisabled, sarama.ErrDelegationTokenNotFound, sarama.ErrDelegationTokenOwnerMismatch,
	sarama.ErrDelegationTokenRequestNotAllowed, sarama.ErrDelegationTokenAuthorizationFailed,
	sarama.ErrDelegationTokenExpired, sarama.ErrInvalidPrincipalType, sarama.ErrNonEmptyGroup,
	sarama.ErrGroupIDNotFound, sarama.ErrFetchSessionIDNotFound, sarama.ErrInvalidFetchSessionEpoch,
	sarama.ErrListenerNotFound, sarama.ErrTopicDeletionDisabled, sarama.ErrFencedLeaderEpoch,
	sarama.ErrUnknownLeaderEpoch, sarama.ErrUnsupportedCompressionType, sarama.ErrStaleBrokerEpoch,
	sarama.ErrOffsetNotAvailable, sarama.ErrMemberIdRequired, sarama.ErrPreferredLeaderNotAvailable,
	sarama.ErrGroupMaxSizeReached, sarama.ErrFencedInstancedId, sarama.ErrEligibleLeadersNotAvailable,
	sarama.ErrElectionNotNeeded, sarama.ErrNoReassignmentInProgress, sarama.ErrGroupSubscribedToTopic,
	sarama.ErrUnstableOffsetCommit, sarama.ErrThrottlingQuotaExceeded, sarama.ErrProducerFenced,
	sarama.ErrInvalidUpdateVersion,
}

// Refused reports whether err is about the message itself, so that sending it again as it is cannot
// help: Kafka refuses it for good, Kafka's client will not send it, or it never became a Kafka record
// at all. A client that cannot be connected says nothing of a message.
func Refused(err error) bool {
	var publish *PublishError
	if !errors.As(err, &publish) {
		return true // it did not get as far as Publish
	}
	var connection notConnectedError
	if errors.As(err, &connection) {
		return false
	}
	var code sarama.KError
	if errors.As(err, &code) {
		_, refused := permanent[code]
		return refused
	}
	var config sarama.ConfigurationError // the client's word for a message that is too large to send
	var encoding sarama.PacketEncodingError
	var record notARecordError
	return errors.As(err, &config) || errors.As(err, &encoding) || errors.As(err, &record)
}

// notConnectedError says that there is no connection, and why.
type notConnectedError struct{ err error }

func (e notConnectedError) Error() string { return e.err.Error() }
func (e notConnectedError) Unwrap() error { return e.err }

// notARecordError says that no record can be made of a message, and why.
type notARecordError struct{ err error }

func (e notARecordError) Error() string { return e.err.Error() }
func (e notARecordError) Unwrap() error { return e.err }
