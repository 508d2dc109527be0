#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
void Map(Rule&) {}
void MapReduce(Rule&) {}
void NllLoss(Rule&) {}
void MaeLoss(Rule&) {}
void BceLoss(Rule&) {}
void BceLogitsLoss(Rule&) {}
void HuberLoss(Rule&) {}
void CausalSoftmax(Rule&) {}
void LayerNorm(Rule&) {}
void RmsNorm(Rule&) {}
void GroupNorm(Rule&) {}
void BatchNorm(Rule&) {}
void Conv(Rule&) {}
void ConvTranspose2d(Rule&) {}
void MaxPool2d(Rule&) {}
void AvgPool2d(Rule&) {}
void GlobalAvgPool(Rule&) {}
void UpsampleNearest2d(Rule&) {}
void LstmCell(Rule&) {}
void GruCell(Rule&) {}
}
