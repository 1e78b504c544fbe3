"""Real models against LiteRT's reference kernels, on random inputs: small ones, and exhaustively all."""

from __future__ import annotations

import pytest

from tests.models.collection import manifest, real_model
from tests.models.comparison import compared_on_random_inputs
from tests.sweeps import sweep

MODELS = [
    "basic_pitch_nmp",
    "coral_deeplab_dm05_u8",
    "coral_keras_lstm_mnist_i8",
    "coral_mnv1_025_128_u8",
    "coral_mnv2_10_224_u8",
    "coral_mnv2_inat_bird_u8",
    "flutter_yamnet",
    "mlc_ad_dynrange",
    "mlc_ad_f32",
    "mlc_ad_i8",
    "mlc_kws_dscnn_i8",
    "mlc_resnet8_f32",
    "mlc_resnet8_i8",
    "mlc_vww_f32",
    "mp_face_detection_short",
    "mp_face_landmark",
    "mp_hand_landmark_lite",
    "mp_hand_recrop",
    "mp_objectron_chair",
    "mp_palm_detection_lite",
    "mp_pose_detection_sparse",
    "mp_pose_landmark_lite",
    "mp_selfie_segmentation",
    "mww_alexa",
    "mww_okay_nabu",
    "seanet_add0_i16",
    "seanet_conv0_i16x8",
    "seanet_conv10_i16x8",
    "seanet_leaky_relu0_i16",
    "seanet_pad0_i16",
    "seanet_transpose_conv0_i16x8",
    "tflm_keyword_scrambled_i16",
    "tflm_micro_speech_i8",
    "tflm_mnist_lstm_f32",
    "tflm_sine_float",
]


def test_every_model_of_the_manifest_is_listed():
    assert set(MODELS) == set(manifest())


SMALL = (
    "coral_keras_lstm_mnist_i8",
    "coral_mnv1_025_128_u8",
    "mlc_ad_dynrange",
    "mlc_ad_f32",
    "mlc_kws_dscnn_i8",
    "mlc_resnet8_i8",
    "mp_face_detection_short",
    "mww_okay_nabu",
    "seanet_add0_i16",
    "seanet_conv0_i16x8",
    "tflm_keyword_scrambled_i16",
    "tflm_micro_speech_i8",
    "tflm_sine_float",
)
"""Models whose reference kernels take less than a second or so: of each kind and each type one at least."""


@pytest.mark.parametrize("name", sweep(MODELS, *SMALL))
def test_a_real_model_gives_what_the_reference_gives(name):
    data = real_model(name)
    found = compared_on_random_inputs(data)
    print(f"{name}: {found}")
    assert found.passes, str(found)
